"""What a run begins with, where that is neither a start nor the seed's draw alone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_processes import Commands, halting, kill_where_it_halts
from local_starts import write_timm_folder
from run_contents import different, everything

from dualtemp.errors import UserError
from dualtemp.models import ResNetMini
from dualtemp.training.initial_weights import initial_weights

DIGITS = ("--data", "digits", "--backbone", "resnet_mini", "--batch", "64", "--subset", "256", "--epochs", "2")
WHITENED = (*DIGITS, "--whiten-stem", "--evaluate-every", "9")


@pytest.mark.parametrize("method", ["simco", "simmoco"])
def test_a_run_killed_before_its_first_checkpoint_begins_again_from_the_same_filters(
    method: str, commands: Commands, run_once: Any, tmp_path: Path
) -> None:
    words, path = (*WHITENED, "--method", method), tmp_path / "run"
    command = commands.start("train", *words, "--out", path, first=halting(".step-*.part", cut=False))
    kill_where_it_halts(command)
    assert not list(path.glob("checkpoints/step-*.ckpt"))
    ended = commands.run("resume", path)
    assert ended.code == 0, ended.err
    assert different(everything(path), everything(run_once(*words))) == []


def test_a_whitened_stem_is_another_run_than_a_drawn_one(run_once: Any) -> None:
    drawn = tuple(word for word in WHITENED if word != "--whiten-stem")
    assert different(everything(run_once(*WHITENED)), everything(run_once(*drawn)))


def test_a_whitened_stem_is_refused_to_a_run_with_a_start(commands: Commands, tmp_path: Path) -> None:
    start = write_timm_folder(tmp_path / "start")
    ended = commands.run("train", "--data", "digits", "--init", start, "--whiten-stem", "--out", tmp_path / "run")
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == (
        "dualtemp: --whiten-stem is for a run that begins from scratch: add --init none, or leave it out"
    )
    assert not (tmp_path / "run").exists()


def test_views_that_are_smaller_than_the_first_filters_cannot_whiten_them() -> None:
    chosen: Any = SimpleNamespace(whiten_stem=True)
    data: Any = SimpleNamespace(images=SimpleNamespace(channels=1), views=SimpleNamespace(size=2))
    whiten = initial_weights(chosen, data, None)
    assert whiten is not None
    with pytest.raises(UserError, match="--whiten-stem needs views of at least 3 px"):
        whiten(ResNetMini(8, 1))
