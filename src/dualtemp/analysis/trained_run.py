"""A trained framework with its data, or with other data, ready for analysis."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dualtemp.analysis.analyzed_data import open_analyzed_data
from dualtemp.config import Settings
from dualtemp.data.augment.philox import permutation
from dualtemp.data.loading.drawn_views import Drawn, draw_views, whole_batches
from dualtemp.data.training_data import TrainingData
from dualtemp.errors import UserError
from dualtemp.frameworks import Temperatures, build_framework, frameworks
from dualtemp.frameworks.moco import MoCo
from dualtemp.losses.image_memory import remembered_images
from dualtemp.runs import checkpoint
from dualtemp.runs.checkpoint import Checkpoint
from dualtemp.runs.folder import RunFolder
from dualtemp.temperatures import TAU_ALPHA
from dualtemp.training.adaptation import set_modes
from dualtemp.training.observers.observer import Snapshot

MAX_KEYS: int = MoCo.Settings.model_fields["dictionary_size"].default  # the published dictionary


class Anchors(NamedTuple):
    """A batch of anchors: q (N, D), two positive keys (N, D) from different views, and the views themselves."""

    q: Tensor
    k_pos: Tensor
    k_redrawn: Tensor
    views: tuple[Tensor, Tensor]  # of q and k_pos, normalized (N, C, H, W)
    index: Tensor  # int64 (N,) on the CPU: positions in run.data.images


class KeyBatch(NamedTuple):
    """Keys of some images: unit vectors k (N, D); their normalized views (N, C, H, W); their positions, index (N,)."""

    k: Tensor
    view: Tensor
    index: Tensor


@dataclass(frozen=True)
class TrainedRun:
    """Settings, framework and data of a run.

    path: the run's folder; chosen: its settings; method: the framework, in training mode with frozen running statistics
    (batch norm sees batches, as it did when the run made its own keys); data: the images to analyze; step: the training
    step of the weights; own_data: whether the data are the run's own.
    """

    path: Path
    chosen: Settings
    method: Any
    data: TrainingData
    device: torch.device
    step: int
    own_data: bool = True

    @property
    def has_anchors(self) -> bool:
        """Whether the framework compares views."""
        return self.chosen.framework.compares_views

    @property
    def temperatures(self) -> Temperatures:
        """Temperatures of the loss, or of the weight if that is only measured; the paper's .1 if there are none."""
        self._require_anchors()
        return self.chosen.framework.temperatures(self.chosen.options) or Temperatures(TAU_ALPHA, TAU_ALPHA)

    @torch.no_grad()
    def query(self, view: Tensor) -> Tensor:
        """Compute q (N, D) of views (N, C, H, W): the prediction if there is a predictor, else the projection."""
        self._require_anchors()
        return self._embedded(self.method.network, view, "prediction")

    @torch.no_grad()
    def key(self, view: Tensor) -> Tensor:
        """Compute keys (N, D) of views (N, C, H, W): the projection, by the key encoder if there is one."""
        self._require_anchors()
        return self._embedded(getattr(self.method, "key_network", self.method.network), view, "projection")

    def anchors(self, batches: int, size: int | None = None) -> Iterator[Anchors]:
        """Yield batches of anchors from views that the run has not seen: those of the epoch after its last.

        size: anchors per batch, at most; default: the run's batch. Later images replace files that cannot be read, so
        all batches have the same size (that of all readable images if there are fewer).
        """
        epoch, in_memory = self.chosen.epochs, self.data.images.in_memory
        # The third view is augmented like the first. For files only two views exist per epoch.
        draws = [(epoch, 0), (epoch, 1), (epoch, 2) if in_memory else (epoch + 1, 0)]
        chosen, most = self._order.split(self._batch(size)), min(batches, self._steps(size))
        # The later batches are only read if files of the first ones cannot be.
        parts = chosen[:most], chosen[most:]
        found = (draw_views(self.data.images, self.data.views, part, draws, self.device) for part in parts if part)
        for drawn in whole_batches(chain.from_iterable(found), self._batch(size), most):
            yield self._anchors(drawn)

    @property
    def has_own_keys(self) -> bool:
        """Whether the run itself filled a dictionary with keys of this data, as MoCo does with its own data."""
        return self._held is not None

    @property
    def max_keys(self) -> int:
        """Largest possible dictionary: MoCo's real keys, else one key per image in an epoch's batches."""
        if (held := self._held) is not None:
            return held.real
        return min(self._steps() * self._batch(), MAX_KEYS)

    @cached_property
    def keys(self) -> Tensor:
        """The largest possible dictionary: (max_keys, D), unit vectors, newest last."""
        return self.dictionary(self.max_keys)

    def dictionary(self, size: int) -> Tensor:
        """Return keys (K, D): unit vectors, newest last.

        MoCo's own dictionary is returned whole. For other frameworks and other data, K = min(size, max_keys) keys are
        made as MoCo would make them, or fewer if fewer images can be read.
        """
        self._require_anchors()
        if (held := self._held) is not None:
            return held.newest(held.real)
        asked, made = size, [batch.k for batch in self.key_batches(size)]
        # Older keys replace those of files that cannot be read.
        while sum(map(len, made)) < size and asked < self.max_keys:
            asked = 2 * asked + self._batch()
            made = [batch.k for batch in self.key_batches(asked)]
        if not made:
            raise UserError(f"{self.data.images.name}: none of its images can be read; check it with `dualtemp data`")
        return torch.cat(made)[-size:]

    def key_batches(self, size: int) -> Iterator[KeyBatch]:
        """Yield the newest `size` keys that MoCo's dictionary would hold after one epoch, oldest first, with views.

        Images are in the order of the anchors' epoch. Anchors come from its start and keys from its end, so keys belong
        to other images as long as there are enough. Their views are of yet another epoch, so no key is a positive. A
        smaller `size` gives a subset of the same keys.
        """
        self._require_anchors()
        batch, steps = self._batch(), self._steps()
        size = min(size, steps * batch, MAX_KEYS)
        first = -(-size // batch) * batch  # whole batches, counted from the end
        chosen = self._order[: steps * batch][steps * batch - first :].split(batch)
        too_old = chosen[0][: first - size]
        draws = [(self.chosen.epochs + 1, 1)]
        for drawn in draw_views(self.data.images, self.data.views, chosen, draws, self.device):
            if len(drawn.index) > 1:
                k = F.normalize(self.key(drawn.views[0]), dim=1)
                start = int(torch.isin(drawn.index, too_old).sum())  # these are the first of the first batch
                yield KeyBatch(k[start:], drawn.views[0][start:], drawn.index[start:])

    @property
    def _held(self) -> Any:
        """The dictionary that the run filled, if its own data are analyzed."""
        held = getattr(self.method.framework, "dictionary", None) if self.own_data else None
        return held if held is not None and held.real else None

    @cached_property
    def _order(self) -> Tensor:
        return permutation(self.data.views.seed, self.chosen.epochs, len(self.data.images))

    def _batch(self, size: int | None = None) -> int:
        self._require_anchors()
        count = len(self.data.images)
        if count < 2:
            raise UserError(
                f"{self.data.images.name} has {count} image, but anchors need at least two: give more images"
            )
        return max(2, min(self.chosen.batch, count, size or count))

    def _steps(self, size: int | None = None) -> int:
        return len(self.data.images) // self._batch(size)

    def _anchors(self, drawn: Drawn) -> Anchors:
        first, second, third = drawn.views
        q, k_pos, k_redrawn = self.query(first), self.key(second), self.key(third)
        return Anchors(q, k_pos, k_redrawn, (first, second), drawn.index)

    def _embedded(self, network: nn.Module, view: Tensor, which: str) -> Tensor:
        # A network with randomness, such as dropout, draws the same every time.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.chosen.seed)
            parts = [getattr(network(part), which) for part in view.split(self.chosen.chunk or max(1, len(view)))]
        return torch.cat(parts).float()

    def _require_anchors(self) -> None:
        if not self.has_anchors:
            others = ", ".join(name for name, kind in frameworks().items() if kind.compares_views)
            raise UserError(f"{self.path} is a {self.chosen.method} run, which has no anchors: give a run of {others}")


def open_trained_run(path: Path, device: torch.device | str = "cpu", data: str | Path | None = None) -> TrainedRun:
    """Open the run in a folder with the weights of its newest intact checkpoint. Nothing is written to the folder.

    Args:
        path: the run's folder.
        device: where to compute, default "cpu".
        data: a set, a folder or an .npz file to analyze instead of the run's own data, with the run's image size,
            recipe and normalization. Default: the run's own data.
    """
    run, device = RunFolder.open(path), torch.device(device)
    chosen, saved = run.settings(), load_newest_checkpoint(run)
    seen = open_analyzed_data(run, chosen, data)
    return _with_weights(path, chosen, saved, seen, device, own_data=data is None)


def open_snapshot(now: Snapshot) -> TrainedRun:
    """Open a running run in its current state, on a copy of its weights; only images are read from disk."""
    saved = Checkpoint(now.step, method=now.weights())
    return _with_weights(now.path, now.chosen, saved, now.data, now.device, own_data=True)


def _with_weights(
    path: Path, chosen: Settings, saved: Checkpoint, seen: TrainingData, device: torch.device, own_data: bool
) -> TrainedRun:
    weights = saved.method
    classes = len(weights.get("network.projector.weight", [0])) if chosen.framework.learns_from_labels else 0
    # The weights come from the checkpoint: the file that the run was initialized from may be gone.
    chosen_here = chosen.model_copy(update={"init": None})
    method = build_framework(chosen_here, seen.images.channels, classes, remembered_images(weights))
    checkpoint.refuse_foreign(saved, method, path)
    method.load_state_dict(weights)
    for module in method.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = 0.0  # analysis leaves the statistics as they are
    set_modes(chosen, method)
    return TrainedRun(path, chosen, method.to(device), seen, device, saved.done, own_data)


def load_newest_checkpoint(run: RunFolder) -> Checkpoint:
    """Load the newest intact checkpoint of a run; damaged ones are left in place."""
    damaged = []
    for path in reversed(checkpoint.checkpoints(run.checkpoints)):
        try:
            return checkpoint.load(path)
        except checkpoint.DamagedCheckpoint as error:
            damaged.append(str(error))
    if damaged:
        raise UserError(f"no checkpoint of {run.path} can be read: {'; '.join(damaged)}; train again")
    raise UserError(f"{run.path} has no checkpoint yet: train first")
