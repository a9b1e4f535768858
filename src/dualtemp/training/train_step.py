"""One training step, shared by the trainer, the estimate of a run's time, and the measurement of the paper's costs.

A loss that gathers keys waits for every process, so every process must take the step, or it would wait forever.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from dualtemp import distributed
from dualtemp.config import Settings
from dualtemp.data.loading.loader import Batch
from dualtemp.data.training_data import TrainingData
from dualtemp.device import seed_generators
from dualtemp.evaluation.probe import OnlineProbe
from dualtemp.frameworks.network import Network, Step
from dualtemp.models.sync_batch_norm import synchronize_batch_norm
from dualtemp.optimizers import build_optimizer, restore_optimizer, set_lr
from dualtemp.runs.checkpoint import PARTS, Checkpoint
from dualtemp.training.adaptation import Adaptation, frozen_stages
from dualtemp.training.anchor import StartAnchor
from dualtemp.training.chunked import ChunkedNetwork
from dualtemp.training.schedule import highest_lr, step_seed


def synchronized(method: Any) -> Any:
    """Convert a framework's batch norm to SyncBatchNorm, also where a layer is an attribute of the framework itself."""
    method = synchronize_batch_norm(method)
    for name, part in method.named_children():
        setattr(method.framework, name, part)
    return method


class TrainStep:
    """A framework on its device with everything that updates it: optimizer, gradient scaler, online probe.

    Every process of a group creates one with the same arguments and calls it equally often.

    Args:
        settings: complete settings.
        method: the result of `build_framework`; moved to the device.
        data: determines whether there is a probe, and how many classes it has.
        device: where to compute.
    """

    def __init__(self, settings: Settings, method: Any, data: TrainingData, device: torch.device) -> None:
        method = method.to(device)
        if device.type == "cuda" and distributed.world_size() > 1:
            method = synchronized(method)
        self.settings, self.method, self.device = settings, method, device
        self.network: Network = method.network  # the whole one, even if the method sees it in chunks
        if settings.channels_last:
            method.to(memory_format=torch.channels_last)
        if settings.compile:
            self.network.compile()
        chunk = settings.chunk
        if chunk is not None and chunk < settings.batch // distributed.world_size():
            method.framework.network = ChunkedNetwork(self.network, chunk)
        self.adaptation = Adaptation(settings, method, max(1, len(data.images) // settings.batch))
        self.anchor = self._anchor(method.framework.network, data) if settings.anchor else None
        self.parameters = [p for p in method.parameters() if p.requires_grad]
        self.optimizer = build_optimizer(
            settings.optimizer, method, settings.momentum, settings.weight_decay, self.adaptation.rates()
        )
        self.scaler = torch.amp.GradScaler(device.type, enabled=settings.amp == "fp16")  # pyright: ignore
        self.probe: OnlineProbe | None = None
        outputs = getattr(self.network.projector, "out_features", None)
        classifies = settings.framework.learns_from_labels and outputs == data.classes  # then it needs no probe
        if data.bank is not None and not classifies:
            backbone: Any = self.network.backbone
            self.probe = OnlineProbe(backbone.num_features, data.classes).to(device)
        self.all_labeled = data.images is data.bank

    @distributed.equal_batches()
    def __call__(self, batch: Batch, step: int, factor: float) -> Step:
        """Learn from one batch.

        Args:
            batch: views and labels of this process's images.
            step: of the whole run, from 0.
            factor: of the highest learning rates, from 0 to 1.
        """
        settings, method = self.settings, self.method
        seed_generators(step_seed(settings.seed, step, distributed.rank()), self.device)  # for dropout and the like
        set_lr(self.optimizer, highest_lr(settings.lr, settings.batch) * factor)
        views = batch.views
        if settings.channels_last:
            views = tuple(view.contiguous(memory_format=torch.channels_last) for view in views)

        self.adaptation.begin_step(step)
        with self._autocast():
            result = method(views, batch.labels, step, batch.device_index)
            if self.anchor is not None and not self.adaptation.warms_up:
                result = result._replace(loss=result.loss + self.anchor.penalty())
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(result.loss).backward()
        if isinstance(method.framework.network, ChunkedNetwork):
            with self._autocast():
                method.framework.network.backward()
        distributed.average_gradients([p for p in self.parameters if p.requires_grad])
        if settings.clip_gradient is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.parameters, settings.clip_gradient)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        method.after_step()
        if self.probe is not None and batch.labels is not None:
            labeled = slice(None) if self.all_labeled else batch.labels >= 0
            self.probe.learn(result.features[labeled], batch.labels[labeled], settings.probe_lr * factor)
        return result

    def state_dict(self) -> dict[str, Any]:
        """The state of every part that a checkpoint holds, by name; None for a part that this run does not have."""
        parts = {name: getattr(self, name) for name in PARTS}
        return {name: None if part is None else part.state_dict() for name, part in parts.items()}

    def load_state_dict(self, state: Checkpoint) -> bool:
        """Restore every part that the checkpoint has; others, such as a scaler that was not used, start anew.

        Returns False if the optimizer starts anew because its kind or its groups of parameters have changed.
        """
        restored = True
        for name in PARTS:
            part, saved = getattr(self, name), getattr(state, name)
            if part is None or not saved:
                continue
            if part is self.optimizer:
                same_kind = state.settings.get("optimizer", self.settings.optimizer) == self.settings.optimizer
                restored = same_kind and restore_optimizer(part, saved)
            else:
                part.load_state_dict(saved)
        return restored

    def _anchor(self, network: nn.Module, data: TrainingData) -> StartAnchor:
        """Anchor to the encoder's present weights: before a checkpoint is loaded, these are the start's."""
        size, chunk = data.views.size, network.chunk if isinstance(network, ChunkedNetwork) else None
        sample = torch.linspace(-1, 1, data.images.channels * size**2, device=self.device)
        sample = sample.view(1, data.images.channels, size, size)
        backbone = self.network.backbone
        frozen = frozen_stages(self.settings, backbone)
        return StartAnchor(self.settings.anchor, network, backbone, frozen, chunk, sample)

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.settings.amp == "none":
            return nullcontext()
        half = torch.bfloat16 if self.settings.amp == "bf16" else torch.float16
        return torch.autocast(self.device.type, dtype=half)
