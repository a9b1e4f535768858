"""Processes ask each other for the shapes that they bring only where nobody knows that these are equal."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import several_processes

import dualtemp
from dualtemp import distributed

QUICK: dict[str, Any] = {
    "data": "digits",
    "backbone": "resnet_mini",
    "epochs": 1,
    "batch": 32,
    "subset": 96,
    "knn_images": 50,
}


def exchanges(asked: list[torch.dtype]) -> None:
    """Note the type of what is gathered from now on: shapes are integers."""
    gather = dist.all_gather

    def noted(tensors: list[torch.Tensor], tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        asked.append(tensor.dtype)
        return gather(tensors, tensor, *args, **kwargs)

    dist.all_gather = noted


def main() -> tuple[list[torch.dtype], list[torch.dtype]]:
    """What two gathers exchange, the second of which knows that shapes are equal; and what training does."""
    asked: list[torch.dtype] = []
    exchanges(asked)
    mine = torch.full((2, 3), float(distributed.rank()))
    checked = distributed.gather(mine)
    with distributed.equal_batches():
        assert torch.equal(distributed.gather(mine), checked)
    by_hand = asked.copy()
    asked.clear()
    for method in ({"method": "simco"}, {"method": "moco", "dictionary_size": 64}):
        out: Any = {"out": f"{sys.argv[-1]}/{method['method']}", "page": False, "quiet": True, "device": "cpu"}
        dualtemp.train(**QUICK, **method, **out)
    return by_hand, asked


@pytest.mark.slow
def test_shapes_are_asked_for_by_hand_and_never_in_training(tmp_path: Path) -> None:
    for by_hand, trained in several_processes.run(__file__, "main", 2, tmp_path / "out"):
        assert by_hand == [torch.int64, torch.float32, torch.float32]
        assert trained
        assert torch.int64 not in trained
