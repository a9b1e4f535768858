"""Adapting in real processes: killed and resumed to the same bits, and by two processes as by one."""

from pathlib import Path

import pytest
import torch
from command_processes import OFTEN, Commands, halting, kill_where_it_halts, together
from local_starts import timm_folder
from run_contents import different, everything
from trained_encoders import photos

__all__ = ["photos", "timm_folder"]  # fixtures

ALL = ("--freeze", "-2", "--freeze-batch-norm", "--layer-decay", "0.5", "--warmup-heads", "0.5", "--anchor", "2")


def words(photos: Path, start: Path, *more: str) -> list[object]:
    found: list[object] = ["--data", photos, "--init", start, "--image-size", "40", "--batch", "8", "--lr", "0.05"]
    return [*found, "--epochs", "2", "--workers", "0", "--no-stop-below-start", *more]


def finish(commands: list) -> None:
    ended = [command.wait() for command in commands]
    assert [each.code for each in ended] == [0] * len(ended), "".join(each.err for each in ended)


@pytest.mark.slow
def test_a_killed_adaptation_goes_on_to_the_same_bits(
    photos: Path, timm_folder: Path, commands: Commands, tmp_path: Path
) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    given = words(photos, timm_folder, *ALL)
    kill_where_it_halts(commands.start("train", *given, *OFTEN, "--out", run, first=halting(".step-*.part", 2)))
    finish([commands.start("resume", run, "--workers", "0")])
    finish([commands.start("train", *given, "--out", whole)])
    assert different(everything(run), everything(whole)) == []


@pytest.mark.slow
def test_two_processes_adapt_as_one_does(photos: Path, timm_folder: Path, commands: Commands, tmp_path: Path) -> None:
    given = words(photos, timm_folder, *ALL)
    finish(together(commands, "train", *given, "--out", tmp_path / "two", count=2))
    finish(together(commands, "train", *given, "--out", tmp_path / "one", count=1))
    two, one = everything(tmp_path / "two"), everything(tmp_path / "one")
    for name, value in one.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.slow
def test_half_precision_in_chunks_adapts_too(
    photos: Path, timm_folder: Path, commands: Commands, tmp_path: Path
) -> None:
    given = words(photos, timm_folder, *ALL, "--amp", "fp16", "--chunk", "2", "--method", "moco")
    finish([commands.start("train", *given, "--out", tmp_path / "run")])
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
