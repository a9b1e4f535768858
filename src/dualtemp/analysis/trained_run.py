"""A trained framework with its data, or with other data: what measurements look into."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dualtemp.analysis.drawn_views import Drawn, drawn_views, whole_batches
from dualtemp.analysis.seen_data import seen_data
from dualtemp.config import Settings
from dualtemp.data.augment.philox import permutation
from dualtemp.data.training_data import TrainingData
from dualtemp.errors import UserError
from dualtemp.frameworks import Temperatures, build_framework, frameworks
from dualtemp.frameworks.moco import MoCo
from dualtemp.losses.image_memory import remembered_images
from dualtemp.runs import checkpoint
from dualtemp.runs.checkpoint import Checkpoint
from dualtemp.runs.folder import RunFolder
from dualtemp.temperatures import TAU_ALPHA
from dualtemp.training.observers.observer import Snapshot

MOST_KEYS: int = MoCo.Settings.model_fields["dictionary_size"].default  # the published dictionary


class Anchors(NamedTuple):
    """A batch of anchors: q (N, D), two positive keys of each (N, D) from different views, and the views themselves."""

    q: Tensor
    k_pos: Tensor
    k_redrawn: Tensor
    views: tuple[Tensor, Tensor]  # of q and k_pos, normalised (N, C, H, W)
    index: Tensor  # int64 (N,) on the CPU: which images of run.data.images


class KeyBatch(NamedTuple):
    """Keys of some images: unit vectors k (N, D); their views (N, C, H, W), normalised; index (N,), which images."""

    k: Tensor
    view: Tensor
    index: Tensor


@dataclass(frozen=True)
class TrainedRun:
    """Settings, framework and data of a run.

    path: the run's folder; chosen: its settings; method: the framework, in training mode (batch norm sees batches, as
    it did when the run's own keys were made) with statistics that stay as they are; data: what is looked at; step: that
    the weights are of; own_data: whether the data are the run's own.
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
        """Those of the loss, or of the weight that is measured; the paper's .1 where the framework names none."""
        self._require_anchors()
        return self.chosen.framework.temperatures(self.chosen.options) or Temperatures(TAU_ALPHA, TAU_ALPHA)

    @torch.no_grad()
    def query(self, view: Tensor) -> Tensor:
        """q (N, D) of views (N, C, H, W): the prediction where there is a predictor, else the projection."""
        self._require_anchors()
        return self._embedded(self.method.network, view, "prediction")

    @torch.no_grad()
    def key(self, view: Tensor) -> Tensor:
        """Keys (N, D) of views (N, C, H, W): the projection, of the key encoder where there is one."""
        self._require_anchors()
        return self._embedded(getattr(self.method, "key_network", self.method.network), view, "projection")

    def anchors(self, batches: int, size: int | None = None) -> Iterator[Anchors]:
        """Batches of anchors from views that the run has not seen: those of the epoch after its last.

        size: anchors in a batch, at most; by default the run's batch. In place of files that cannot be read stand later
        ones: all batches are of one size, that of the readable images if there are fewer.
        """
        epoch, in_memory = self.chosen.epochs, self.data.images.in_memory
        # The third view has the augmentation of the first. Of a file only two views are drawn in an epoch.
        draws = [(epoch, 0), (epoch, 1), (epoch, 2) if in_memory else (epoch + 1, 0)]
        chosen, most = self._order.split(self._batch(size)), min(batches, self._steps(size))
        # The later ones are not begun unless files of the first cannot be read.
        parts = chosen[:most], chosen[most:]
        found = (drawn_views(self.data.images, self.data.views, part, draws, self.device) for part in parts if part)
        for drawn in whole_batches(chain.from_iterable(found), self._batch(size), most):
            yield self._anchors(drawn)

    @property
    def holds_keys(self) -> bool:
        """Whether the run filled a dictionary with keys of the data that are looked at: MoCo does with its own."""
        return self._held is not None

    @property
    def most_keys(self) -> int:
        """Keys that a dictionary of this run can have: MoCo's real ones, else one an image (of an epoch's batches)."""
        if (held := self._held) is not None:
            return held.real
        return min(self._steps() * self._batch(), MOST_KEYS)

    @cached_property
    def keys(self) -> Tensor:
        """The largest dictionary that there is: (most_keys, D), unit vectors, newest last."""
        return self.dictionary(self.most_keys)

    def dictionary(self, size: int) -> Tensor:
        """Keys (K, D), unit vectors, newest last.

        MoCo's own dictionary is given whole. Other frameworks have none, nor has MoCo one of other data: `size` keys
        are made as MoCo would, K = min(size, most_keys), or fewer if fewer images can be read.
        """
        self._require_anchors()
        if (held := self._held) is not None:
            return held.newest(held.real)
        asked, made = size, [batch.k for batch in self.key_batches(size)]
        # Older ones stand in for files that cannot be read.
        while sum(map(len, made)) < size and asked < self.most_keys:
            asked = 2 * asked + self._batch()
            made = [batch.k for batch in self.key_batches(asked)]
        if not made:
            raise UserError(f"{self.data.images.name}: no image of it can be read; see `dualtemp data` on it")
        return torch.cat(made)[-size:]

    def key_batches(self, size: int) -> Iterator[KeyBatch]:
        """The newest `size` keys that MoCo's dictionary would hold of one epoch, oldest first, with their views.

        The images stand in the order of the anchors' epoch, and the anchors come from its beginning: as long as there
        are enough images the keys are of others. The views are of yet another epoch, so that no key is a positive.
        Of a smaller size the keys are the same.
        """
        self._require_anchors()
        batch, steps = self._batch(), self._steps()
        size = min(size, steps * batch, MOST_KEYS)
        first = -(-size // batch) * batch  # whole batches, counted from the end
        chosen = self._order[: steps * batch][steps * batch - first :].split(batch)
        too_old = chosen[0][: first - size]
        draws = [(self.chosen.epochs + 1, 1)]
        for drawn in drawn_views(self.data.images, self.data.views, chosen, draws, self.device):
            if len(drawn.index) > 1:
                k = F.normalize(self.key(drawn.views[0]), dim=1)
                start = int(torch.isin(drawn.index, too_old).sum())  # they stand at the beginning of the first batch
                yield KeyBatch(k[start:], drawn.views[0][start:], drawn.index[start:])

    @property
    def _held(self) -> Any:
        """The dictionary that the run filled itself, if its data are looked at."""
        held = getattr(self.method.framework, "dictionary", None) if self.own_data else None
        return held if held is not None and held.real else None

    @cached_property
    def _order(self) -> Tensor:
        return permutation(self.data.views.seed, self.chosen.epochs, len(self.data.images))

    def _batch(self, size: int | None = None) -> int:
        self._require_anchors()
        count = len(self.data.images)
        if count < 2:
            raise UserError(f"{self.data.images.name} has {count} image: anchors need at least two, give more images")
        return max(2, min(self.chosen.batch, count, size or count))

    def _steps(self, size: int | None = None) -> int:
        return len(self.data.images) // self._batch(size)

    def _anchors(self, drawn: Drawn) -> Anchors:
        first, second, third = drawn.views
        q, k_pos, k_redrawn = self.query(first), self.key(second), self.key(third)
        return Anchors(q, k_pos, k_redrawn, (first, second), drawn.index)

    def _embedded(self, network: nn.Module, view: Tensor, which: str) -> Tensor:
        # A network that draws something, such as dropout, draws the same every time.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.chosen.seed)
            parts = [getattr(network(part), which) for part in view.split(self.chosen.chunk or max(1, len(view)))]
        return torch.cat(parts).float()

    def _require_anchors(self) -> None:
        if not self.has_anchors:
            others = ", ".join(name for name, kind in frameworks().items() if kind.compares_views)
            raise UserError(
                f"{self.path} is a run of {self.chosen.method}, which has no anchors: give a run of {others}"
            )


def trained_run(path: Path, device: torch.device | str = "cpu", data: str | Path | None = None) -> TrainedRun:
    """The run in a folder, with the weights of its newest whole checkpoint. Nothing is written to the folder.

    Args:
        path: of the run.
        device: where it is computed, default "cpu".
        data: a set, a folder or an .npz file to look at instead of the run's own data; it is seen as the run saw its
            own: with its image size, recipe and normalisation. Default: the run's own data.
    """
    run, device = RunFolder.opened(path), torch.device(device)
    chosen, saved = run.settings(), newest_whole(run)
    seen = seen_data(run, chosen, data)
    return _with_weights(path, chosen, saved, seen, device, own_data=data is None)


def running_run(now: Snapshot) -> TrainedRun:
    """A run that goes on, as it stands now, on a copy of its weights; nothing is read from the disk but images."""
    saved = Checkpoint(now.step, method=now.weights())
    return _with_weights(now.path, now.chosen, saved, now.data, now.device, own_data=True)


def _with_weights(
    path: Path, chosen: Settings, saved: Checkpoint, seen: TrainingData, device: torch.device, own_data: bool
) -> TrainedRun:
    weights = saved.method
    classes = len(weights.get("network.projector.weight", [0])) if chosen.framework.learns_from_labels else 0
    # The weights come from the checkpoint: what the run was initialised from need not be there any more.
    chosen_here = chosen.model_copy(update={"init": None})
    method = build_framework(chosen_here, seen.images.channels, classes, remembered_images(weights))
    checkpoint.refuse_foreign(saved, method, path)
    method.load_state_dict(weights)
    for module in method.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = 0.0  # looking changes nothing
    return TrainedRun(path, chosen, method.to(device).train(), seen, device, saved.done, own_data)


def newest_whole(run: RunFolder) -> Checkpoint:
    """The newest checkpoint of a run that is whole; damaged ones are left where they are."""
    told = []
    for path in reversed(checkpoint.checkpoints(run.checkpoints)):
        try:
            return checkpoint.load(path)
        except checkpoint.DamagedCheckpoint as error:
            told.append(str(error))
    if told:
        raise UserError(f"no checkpoint of {run.path} can be read: {'; '.join(told)}; train anew")
    raise UserError(f"{run.path} has no checkpoint yet: train first")
