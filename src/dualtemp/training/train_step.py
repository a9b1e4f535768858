"""One training step, shared by all who train or measure: the loop, a run's expected time, the cost of the paper's runs.

A loss that gathers keys waits for every process, so a step that only one of them takes would wait for ever.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from dualtemp import distributed
from dualtemp.config import Settings
from dualtemp.data.loading.loader import Batch
from dualtemp.evaluation.probe import OnlineProbe
from dualtemp.frameworks.network import Network, Step
from dualtemp.models.sync_batch_norm import synchronize_batch_norm
from dualtemp.training.chunked import ChunkedNetwork
from dualtemp.training.optimizers import build_optimizer, set_lr
from dualtemp.training.schedule import highest_lr, step_seed
from dualtemp.training.training_data import TrainingData


class TrainStep:
    """A framework on its device with everything that moves it: optimizer, gradient scaler, online probe.

    Every process of a group makes one with the same arguments, and calls it equally often.

    Args:
        chosen: complete settings.
        method: what `build_framework` makes of them; moved to the device.
        data: decides whether there is a probe, and how many classes it has.
        device: where the step is computed.
    """

    def __init__(self, chosen: Settings, method: Any, data: TrainingData, device: torch.device) -> None:
        method = method.to(device)
        if device.type == "cuda" and distributed.world_size() > 1:
            method = synchronize_batch_norm(method)
        self.chosen, self.method, self.device = chosen, method, device
        self.network: Network = method.network  # whole, also where the method sees it in chunks
        if chosen.channels_last:
            method.to(memory_format=torch.channels_last)
        if chosen.compile:
            self.network.compile()
        if chosen.chunk is not None and chosen.chunk < chosen.batch // distributed.world_size():
            method.framework.network = ChunkedNetwork(self.network, chosen.chunk)
        self.parameters = [p for p in method.parameters() if p.requires_grad]
        self.optimizer = build_optimizer(chosen.optimizer, method, chosen.momentum, chosen.weight_decay)
        self.scaler = torch.amp.GradScaler(device.type, enabled=chosen.amp == "fp16")  # pyright: ignore
        self.probe: OnlineProbe | None = None
        if data.bank is not None and not chosen.framework.learns_from_labels:
            backbone: Any = self.network.backbone
            self.probe = OnlineProbe(backbone.num_features, data.classes).to(device)
        self.all_labeled = data.images is data.bank
        method.train()

    @distributed.equal_batches()
    def __call__(self, batch: Batch, step: int, factor: float) -> Step:
        """Learn from a batch; step: of the whole run, from 0; factor: share of the highest learning rates."""
        chosen, method = self.chosen, self.method
        torch.manual_seed(step_seed(chosen.seed, step, distributed.rank()))  # of dropout, if there is any
        set_lr(self.optimizer, highest_lr(chosen.lr, chosen.batch) * factor)
        views = batch.views
        if chosen.channels_last:
            views = tuple(view.contiguous(memory_format=torch.channels_last) for view in views)

        with self._autocast():
            made = method(views, batch.labels, step)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(made.loss).backward()
        if isinstance(method.framework.network, ChunkedNetwork):
            with self._autocast():
                method.framework.network.backward()
        distributed.average_gradients(self.parameters)
        if chosen.clip_gradient is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.parameters, chosen.clip_gradient)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        method.after_step()
        if self.probe is not None and batch.labels is not None:
            known = slice(None) if self.all_labeled else batch.labels >= 0  # not those without a label
            self.probe.learn(made.features[known], batch.labels[known], chosen.probe_lr * factor)
        return made

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds of it, by name."""
        return {
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "probe": None if self.probe is None else self.probe.state_dict(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.method.load_state_dict(saved["method"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scaler.load_state_dict(saved["scaler"])
        if self.probe is not None:
            self.probe.load_state_dict(saved["probe"])

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.chosen.amp == "none":
            return nullcontext()
        half = torch.bfloat16 if self.chosen.amp == "bf16" else torch.float16
        return torch.autocast(self.device.type, dtype=half)
