"""Runs that go wrong by themselves: not finite, out of memory, collapsed."""

import re
from pathlib import Path

import pytest
import torch
from command_processes import Commands
from run_contents import flat

from dualtemp.runs import checkpoint
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.status import status_of
from dualtemp.training.failures import all_finite, is_out_of_memory

DIGITS = ("--data", "digits", "--backbone", "resnet_mini", "--batch", "64", "--subset", "256", "--warmup-epochs", "0")


@pytest.mark.parametrize("lr", ["1e4", "1e10", "1e38"])
def test_a_run_that_is_not_finite_stops_with_a_line_and_only_finite_checkpoints(
    lr: str, commands: Commands, tmp_path: Path
) -> None:
    words = (
        "--method",
        "simco",
        "--epochs",
        "40",
        "--lr",
        lr,
        "--weight-decay",
        "1000",
        "--checkpoint-minutes",
        "1e-9",
    )
    ended = commands.run("train", *DIGITS, *words, "--out", tmp_path / "run")
    assert ended.code == 2, ended.err
    told = re.fullmatch(
        r"dualtemp: the (loss is not finite at|weights are not finite after) step (\d+) \(epoch (\d+)\); (.*)\. "
        r"Try a lower --lr, --clip-gradient 1\n",
        ended.err,
    )
    assert told, ended.err
    if lr == "1e38":  # one step, with a finite loss, is enough to spoil the weights
        assert (told[1], told[2], told[4]) == ("weights are not finite after", "1", "there is no checkpoint yet")
    step, epoch = int(told[2]), int(told[3])
    assert epoch == (step - 1) // 4 + 1
    kept = checkpoint.checkpoints(tmp_path / "run" / "checkpoints")
    assert told[4] == (f"the last good checkpoint is {kept[-1].name}" if kept else "there is no checkpoint yet")
    assert status_of(RunFolder(tmp_path / "run")) == ("failed", ended.err.removeprefix("dualtemp: ").strip())
    for path in kept:
        assert all(
            x.isfinite().all() for x in flat(checkpoint.load(path).to_payload()).values() if isinstance(x, torch.Tensor)
        )


@pytest.mark.parametrize("labels", [(), ("--no-labels",)])
def test_finite_weights_that_are_too_large_to_measure_end_the_run_with_a_line(
    labels: tuple[str, ...], commands: Commands, tmp_path: Path
) -> None:
    words = ("--epochs", "3", "--subset", "24", "--batch", "8", "--optimizer", "adamw", "--weight-decay", "1e10")
    data = ("--data", "digits", "--backbone", "resnet_mini")
    ended = commands.run("train", *data, *words, *labels, "--out", tmp_path / "run")
    assert ended.code == 2, ended.err
    assert re.fullmatch(
        r"dualtemp: the features are not finite after step 3 \(epoch 1\), though the weights are; there is no "
        r"checkpoint yet\. Try a lower --lr, --clip-gradient 1\n",
        ended.err,
    ), ended.err
    assert status_of(RunFolder(tmp_path / "run")) == ("failed", ended.err.removeprefix("dualtemp: ").strip())


def test_a_run_that_there_is_no_memory_for_is_refused_with_a_line(commands: Commands, tmp_path: Path) -> None:
    words = ("--method", "moco", "--dictionary-size", 10**9)
    ended = commands.run("train", *DIGITS, *words, "--out", tmp_path / "run")
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert "there is not enough memory (it asked for 476.8 GiB at once)" in ended.err
    assert "--chunk 16 (same loss), or a smaller --batch" in ended.err
    assert not (tmp_path / "run").exists()


GREEDY = """
import torch
from dualtemp.frameworks import framework
from dualtemp.frameworks.simco import SimCo
@framework("greedy")
class Greedy(SimCo):
    def forward(self, views, labels, step, index=None):
        if step == 5:
            torch.empty(1 << 50)
        return super().forward(views, labels, step, index)
"""


def test_a_step_that_there_is_no_memory_for_ends_the_run_with_a_line(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text(GREEDY)
    words = ("--plugin", tmp_path / "greedy.py", "--method", "greedy", "--epochs", "2")
    ended = commands.run("train", *DIGITS, *words, "--out", tmp_path / "run")
    assert ended.code == 2, ended.err
    last = ended.err.splitlines()[-1]
    assert last.startswith("dualtemp: there is not enough memory (it asked for 4,194,304.0 GiB at once); the last good")
    assert last.endswith(f"set chunk: 16 in {tmp_path / 'run' / 'config.yaml'} and resume (same loss)")
    assert RunFolder(tmp_path / "run").trouble.read_text().strip() == last.removeprefix("dualtemp: ")


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ..."), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 17 GB)"), True),
        (RuntimeError("shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_a_lack_of_memory_is_told_from_other_errors(error: Exception, is_memory: bool) -> None:
    assert is_out_of_memory(error) is is_memory


def test_every_place_where_a_number_can_be_spoilt_is_looked_at() -> None:
    module = torch.nn.BatchNorm1d(3)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    assert all_finite(module, optimizer, None)
    assert module.running_var is not None
    for tensor in (module.weight.data, module.running_var, optimizer.state[module.bias]["exp_avg_sq"]):
        kept = tensor[1].clone()
        tensor[1] = float("inf")
        assert not all_finite(module, optimizer, None)
        tensor[1] = kept
    assert all_finite(module, optimizer, None)


# Without batch norm, at ten times a good rate, all images get the same features.
COLLAPSING = ("--backbone", "test_vit", "--image-size", "32", "--epochs", "3", "--lr", "0.2")


@pytest.mark.parametrize("method", [("simco",), ("moco", "--dictionary-size", "64", "--vector-sampling", "earliest")])
def test_a_collapse_is_a_result_that_is_told(method: tuple[str, ...], commands: Commands, tmp_path: Path) -> None:
    ended = commands.run("train", *DIGITS, *COLLAPSING, "--method", *method, "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    last = RunFolder(tmp_path / "run").history()[-1]
    assert last["collapsed"] is True
    assert last["spread"] < 0.02
    assert last["probe_top1"] < 25
    assert "COLLAPSED" in ended.out.splitlines()[-1]


@pytest.mark.slow
def test_a_run_that_learns_has_not_collapsed(commands: Commands, tmp_path: Path) -> None:
    ended = commands.run("train", *DIGITS, *COLLAPSING, "--lr", "0.01", "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert [line["collapsed"] for line in RunFolder(tmp_path / "run").history()] == [False] * 3
    assert "COLLAPSED" not in ended.out
