"""The comparison with the start: which images it looks at, and what it counts."""

from pathlib import Path

import pytest
import torch
from trained_encoders import photos

from dualtemp.config import complete, settings
from dualtemp.data.sources.opening import open_source
from dualtemp.training.run_data import training_data
from dualtemp.training.start_comparison import StartComparison

__all__ = ["photos"]  # a fixture


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
    first = comparison.look(bank, bank_labels, at_start, labels)
    assert first == {"held_out_knn_top1": pytest.approx(60), "held_out_gained": 0, "held_out_lost": 0}
    resumed = StartComparison()
    resumed.load_state_dict(comparison.state_dict())
    found = resumed.look(bank, bank_labels, after, labels)
    assert found == {"held_out_knn_top1": pytest.approx(60), "held_out_gained": 1, "held_out_lost": 1}
    assert resumed.look(bank, bank_labels, after[:4], labels[:4]) == {}  # a file has gone: nothing to compare with
