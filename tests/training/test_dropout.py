"""What a network draws in a step depends on the step, not on what was drawn before."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from run_contents import different, everything
from torch import nn

from dualtemp.config import complete, settings
from dualtemp.frameworks import Context, FrameworkModule
from dualtemp.frameworks.network import Network
from dualtemp.frameworks.simco import SimCo
from dualtemp.runs import checkpoint
from dualtemp.runs.folder import RunFolder
from dualtemp.training.failures import Interrupted
from dualtemp.training.observers.display import Display
from dualtemp.training.run_data import open_data, training_data
from dualtemp.training.trainer import Trainer


class Backbone(nn.Sequential):
    num_features = 16

    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 16), nn.Dropout(0.2)
        )


def trained(path: Path, stops: tuple[int, ...], chunk: int | None) -> dict[str, Any]:
    """Train, stopping after these numbers of steps and going on with other random numbers drawn in between."""
    chosen = settings({"data": "digits", "subset": 200, "batch": 64, "epochs": 3, "warmup_epochs": 0, "chunk": chunk})
    chosen = complete(chosen, 8)
    data = training_data(chosen, open_data(chosen))
    run = RunFolder(path)
    run.checkpoints.mkdir(parents=True)
    for stop in (*stops, None):
        torch.manual_seed(7)
        network = Network(Backbone(), nn.Linear(16, 8))
        method = FrameworkModule(SimCo(SimCo.Settings(), network, Context(seed=0, batch=64)))
        torch.manual_seed(stop or 0)
        asked = iter([False] * (stop - 1) + [True] * 9) if stop else None
        found = checkpoint.checkpoints(run.checkpoints)
        stop_requested = (lambda asked=asked: next(asked)) if asked else (lambda: False)
        trainer = Trainer(
            chosen, method, data, run, torch.device("cpu"), Display(quiet=True), stop_requested=stop_requested
        )
        if found:
            trainer.load_state_dict(checkpoint.load(found[-1]))
        with pytest.raises(Interrupted) if stop else nullcontext():
            trainer.train()
    return everything(path)


@pytest.mark.parametrize("chunk", [None, 20])
def test_dropout_is_the_same_after_going_on(chunk: int | None, tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", (), chunk)
    assert different(trained(tmp_path / "stopped", (2, 3), chunk), whole) == []
