"""Runs that go wrong by themselves: not finite, collapsed."""

import re
from pathlib import Path

import pytest
import torch
from command_processes import Commands
from run_contents import flat

from dualtemp.training import checkpoint
from dualtemp.training.stops import all_finite

DIGITS = ("--data", "digits", "--backbone", "resnet_mini", "--batch", "64", "--subset", "256", "--warmup-epochs", "0")


@pytest.mark.parametrize("lr", ["1e4", "1e10", "1e30"])
def test_a_run_that_is_not_finite_stops_with_a_line_and_only_finite_checkpoints(
    lr: str, commands: Commands, tmp_path: Path
) -> None:
    words = ("--method", "simco", "--epochs", "40", "--lr", lr, "--weight-decay", "1", "--checkpoint-minutes", "1e-9")
    ended = commands.run("train", *DIGITS, *words, "--out", tmp_path / "run")
    assert ended.code == 2, ended.err
    told = re.fullmatch(
        r"dualtemp: the (loss is not finite at|weights are not finite after) step (\d+) \(epoch (\d+)\); (.*)\. "
        r"Try a lower --lr, --clip-gradient 1\n",
        ended.err,
    )
    assert told, ended.err
    step, epoch = int(told[2]), int(told[3])
    assert epoch == (step - 1) // 4 + 1
    kept = checkpoint.checkpoints(tmp_path / "run" / "checkpoints")
    assert told[4] == (f"the last good checkpoint is {kept[-1].name}" if kept else "there is no checkpoint yet")
    for path in kept:
        assert all(x.isfinite().all() for x in flat(checkpoint.load(path)).values() if isinstance(x, torch.Tensor))


def test_every_place_where_a_number_can_be_spoilt_is_looked_at() -> None:
    module = torch.nn.BatchNorm1d(3)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    assert all_finite(module, optimizer, None)
    for tensor in (module.weight.data, module.running_var, optimizer.state[module.bias]["exp_avg_sq"]):
        kept = tensor[1].clone()
        tensor[1] = float("inf")
        assert not all_finite(module, optimizer, None)
        tensor[1] = kept
    assert all_finite(module, optimizer, None)
