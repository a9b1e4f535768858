"""Names that the documentation once used: they still work, with a warning."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import dualtemp
from dualtemp import models
from dualtemp.cli import main
from dualtemp.data import ImageSet, Splits
from dualtemp.errors import UserError


@pytest.mark.parametrize(
    ("former", "new"), [("initialise", "initialize"), ("seeded_initialisation", "seeded_initialization")]
)
def test_a_former_name_in_models_is_the_new_one(former: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"dualtemp.models.{former} is now dualtemp.models.{new}"):
        assert getattr(models, former) is getattr(models, new)


@pytest.mark.parametrize(
    ("call", "former", "new"),
    [
        (lambda out, **words: dualtemp.train(out=out, data="no such set", **words), "watch", "observer"),
        (lambda out, **words: dualtemp.resume(out, **words), "watch", "observer"),
        (lambda out, **words: dualtemp.embed(out, out="e.npz", **words), "told", "progress"),
        (lambda out, **words: dualtemp.search(out, ["p.jpg"], **words), "told", "progress"),
        (lambda out, **words: dualtemp.near_duplicates(out, **words), "told", "progress"),
        (lambda out, **words: dualtemp.evaluate(out, **words), "told", "progress"),
    ],
)
def test_a_function_takes_an_argument_by_its_former_name(
    tmp_path: Path, call: Callable[..., Any], former: str, new: str
) -> None:
    with pytest.warns(DeprecationWarning, match=f"{former!r} of .* is now {new!r}"), pytest.raises(UserError):
        call(tmp_path / "no run", **{former: None})


def test_splits_can_be_made_and_asked_by_the_former_spelling() -> None:
    images = ImageSet("three", torch.zeros(3, 3, 8, 8, dtype=torch.uint8))
    with pytest.warns(DeprecationWarning, match="'unlabelled' of Splits.__init__ is now 'unlabeled'"):
        splits = Splits(images, unlabelled=images)  # pyright: ignore[reportCallIssue]
    assert splits.unlabeled is images
    assert list(splits.parts()) == ["train", "unlabelled"], "as files and environment.json name them"
    with pytest.warns(DeprecationWarning, match="Splits.unlabelled is now Splits.unlabeled"):
        assert splits.unlabelled is images


def test_json_of_data_keeps_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "--json"]) == 0
    sets = {each["name"]: each for each in json.loads(capsys.readouterr().out)["sets"]}
    assert sets["stl10"]["unlabelled"] == sets["stl10"]["unlabeled"] == 100_000
    assert main(["data", "digits", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["grey_in_colour"] is facts["gray_in_color"] is False
