"""A trained framework with its data: what measurements look into."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dualtemp.config import Settings
from dualtemp.data.loader import Loader
from dualtemp.dictionary import KeyDictionary
from dualtemp.errors import UserError
from dualtemp.methods import build_method
from dualtemp.training import checkpoint
from dualtemp.training.run_data import opened, training_data
from dualtemp.training.run_folder import RunFolder
from dualtemp.training.training_data import TrainingData


class Anchors(NamedTuple):
    """A batch of anchors: q (N, D), two positive keys of each (N, D) from different views, and the views themselves."""

    q: Tensor
    k_pos: Tensor
    k_redrawn: Tensor
    views: tuple[Tensor, Tensor]  # of q and k_pos, normalised (N, C, H, W)


@dataclass(frozen=True)
class TrainedRun:
    """Settings, framework and data of a run."""

    chosen: Settings
    method: Any
    data: TrainingData
    device: torch.device

    @property
    def keys(self) -> Tensor:
        """The keys of MoCo's dictionary that came from an encoder, (K, D), newest last."""
        dictionary = self.method.dictionaries[0]
        assert isinstance(dictionary, KeyDictionary)
        return dictionary.newest(dictionary.real)

    def anchors(self, batches: int) -> Iterator[Anchors]:
        """Batches of anchors from views that the run has not seen: those of the epoch after its last.

        Batch norm sees batches, as it did when the dictionary's keys were made.
        """
        count = self.chosen.batch
        with Loader(self.data.images, self.data.views, count, device=self.device, count=3) as loader:
            for number, batch in enumerate(loader.batches(self.chosen.epochs)):
                if number == batches:
                    return
                first, second, third = batch.views
                with torch.no_grad():
                    q = self.method.network(first).projection
                    k_pos, k_redrawn = (self.method.key_network(view).projection for view in (second, third))
                yield Anchors(q, k_pos, k_redrawn, (first, second))


def trained_run(path: Path, device: torch.device | str = "cpu") -> TrainedRun:
    """The run in a folder, with the weights of its newest checkpoint; its framework must have a dictionary."""
    run = RunFolder.opened(path)
    chosen, device = run.settings(), torch.device(device)
    saved = checkpoint.checkpoints(run.checkpoints)
    if not saved:
        raise UserError(f"{path} has no checkpoint yet: train first")
    if chosen.method != "moco":
        raise UserError(f"{path} is a run of {chosen.method}: a dictionary is looked into, give one of moco")
    data = training_data(chosen, opened(chosen))
    method = build_method(chosen, data.images.channels, data.classes)
    method.load_state_dict(checkpoint.load(saved[-1])["method"])
    return TrainedRun(chosen, method.to(device).train(), data, device)
