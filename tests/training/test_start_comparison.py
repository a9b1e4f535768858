"""The comparison with the start: which images it looks at, and what it counts."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from local_starts import timm_folder
from trained_encoders import photos

from dualtemp.api import resume, train
from dualtemp.config import complete, settings
from dualtemp.data.sources.opening import open_source
from dualtemp.runs.folder import RunFolder
from dualtemp.training.run_data import training_data
from dualtemp.training.start_comparison import StartComparison

__all__ = ["photos", "timm_folder"]  # fixtures


def test_what_stops_a_run_is_neither_learned_from_nor_a_test_image(photos: Path) -> None:
    splits = open_source(photos)
    chosen = complete(settings({"data": str(photos), "stop_below_start": True, "image_size": 16}), 16)
    data, whole = training_data(chosen, splits), set(splits.train.source.names)
    assert data.held_out is not None
    assert data.test is not None
    held_out, learned = set(data.held_out.source.names), set(data.images.source.names)
    assert held_out
    assert not held_out & learned
    assert held_out | learned == whole
    assert not held_out & set(data.test.source.names)
    assert data.bank is not None
    assert set(data.bank.source.names) == learned
    plain = training_data(chosen.model_copy(update={"stop_below_start": False}), splits)
    assert (plain.held_out, len(plain.images)) == (None, len(whole))


def test_gains_and_losses_are_counted_image_by_image() -> None:
    bank, bank_labels = torch.eye(2).repeat(3, 1), torch.tensor([0, 1] * 3)
    labels = torch.tensor([0, 0, 1, 1, 0])
    at_start = torch.tensor([[1.0, 0], [1, 0], [0, 1], [1, 0], [0, 1]])  # right, right, right, wrong, wrong
    after = torch.tensor([[1.0, 0], [0, 1], [0, 1], [0, 1], [0, 1]])  # right, lost, right, gained, wrong
    comparison = StartComparison()
    everything = torch.ones(5, dtype=torch.bool)
    first = comparison.look(bank, bank_labels, at_start, labels, everything)
    assert first == {"held_out_knn_top1": pytest.approx(60), "held_out_gained": 0, "held_out_lost": 0}
    resumed = StartComparison()
    resumed.load_state_dict(comparison.state_dict())
    found = resumed.look(bank, bank_labels, after, labels, everything)
    assert found == {"held_out_knn_top1": pytest.approx(60), "held_out_gained": 1, "held_out_lost": 1}
    seen = torch.tensor([True, False, True, True, True])  # the file that would be lost has gone
    found = resumed.look(bank, bank_labels, after[seen], labels[seen], seen)
    assert found == {"held_out_knn_top1": pytest.approx(75), "held_out_gained": 1, "held_out_lost": 0}
    late = StartComparison()  # the file that would be gained could not be read at the start
    seen = torch.tensor([True, True, True, False, True])
    late.look(bank, bank_labels, at_start[seen], labels[seen], seen)
    found = late.look(bank, bank_labels, after, labels, everything)
    assert found == {"held_out_knn_top1": pytest.approx(60), "held_out_gained": 0, "held_out_lost": 1}
    earlier = StartComparison()
    earlier.load_state_dict({name: value for name, value in comparison.state_dict().items() if name != "seen"})
    assert earlier.look(bank, bank_labels, after, labels, everything)["held_out_lost"] == 1


@pytest.mark.slow
def test_a_held_out_file_that_goes_while_a_run_trains_does_not_freeze_its_encoder(
    photos: Path, timm_folder: Path, tmp_path: Path
) -> None:
    own, run = tmp_path / "photos", tmp_path / "run"
    shutil.copytree(photos, own)
    words: dict[str, Any] = {"stop_below_start": True, "freeze": 0, "anchor": 0.0, "layer_decay": 1.0, "lr": 1e-4}
    words |= {"batch": 8, "image_size": 40, "workers": 0, "threads": 1, "device": "cpu", "quiet": True, "page": False}
    train(data=str(own), init=str(timm_folder), out=run, epochs=1, **words)
    chosen = RunFolder(run).settings()
    held_out = training_data(chosen, open_source(own)).held_out
    assert held_out is not None
    broken = own / held_out.source.names[0]
    size = broken.stat().st_size
    broken.write_bytes(b"no image any more".ljust(size))
    before = (run / "backbone.safetensors").read_bytes()
    assert "held_out_lost" in resume(run, 2, quiet=True)
    assert (run / "backbone.safetensors").read_bytes() != before
