"""Somebody's own photographs begin from a start where one can be had; everything else begins as it did."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from drawn_photos import drawn_photo
from local_starts import hub_cache, timm_folder

from dualtemp.config import settings
from dualtemp.data.sources.opening import open_source
from dualtemp.errors import UserError
from dualtemp.models import starts
from dualtemp.runs.folder import RunFolder
from dualtemp.training.default_start import default_start, prefers_start
from dualtemp.training.launch import ExecutionOptions
from dualtemp.training.own_images import paragraph, with_sensible_settings
from dualtemp.training.pretrained import find_start, with_start
from dualtemp.training.resume import resume_run
from dualtemp.training.run_data import image_size
from dualtemp.training.sensible_settings import ADAPTED, Adapted, Facts, sensible
from dualtemp.training.start import start

__all__ = ["hub_cache", "timm_folder"]  # fixtures


def photographs(root: Path, side: int = 112, count: int = 20) -> Path:
    for number in range(count):
        path = root / f"class{number % 2}" / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn_photo(number, side + 8 + number % 3, side).save(path)
    return root


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def begin(self, path: Path, chosen: Any) -> None: ...

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None: ...

    def epoch(self, metrics: dict[str, Any]) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None: ...


@pytest.mark.slow
def test_photographs_begin_from_imagenet_whose_last_stage_learns(hub_cache: Path, tmp_path: Path) -> None:
    root, run = photographs(tmp_path / "photos", count=24), tmp_path / "run"
    chosen = settings({"data": str(root), "image_size": 96, "epochs": 1, "batch": 8})
    options = ExecutionOptions(device="cpu", workers=0, threads=1, quiet=True)
    last = start(chosen, run, options, Notes())
    made = yaml.safe_load((run / "config.yaml").read_text())
    assert (made["init"], made["backbone"]) == ("imagenet", "tf_efficientnet_lite0")
    assert {name: made[name] for name in ADAPTED} == ADAPTED
    assert made["init_content"] == find_start("imagenet").content
    assert "start_knn_top1" in last
    environment = RunFolder(run).read_environment()
    assert environment["images"]["mean"] == pytest.approx([127 / 255] * 3)  # the start's own input
    assert [line["epoch"] for line in RunFolder(run).history()] == [1]
    if not last["stopped"]:
        resume_run(run, 2, options, Notes())
        assert len(RunFolder(run).history()) == 2


def test_where_no_start_can_be_had_one_line_says_so_and_the_run_begins_from_nothing(
    hub_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "PACKAGE", "no_such_package_is_installed")
    root, run, told = photographs(tmp_path / "photos"), tmp_path / "run", Notes()
    chosen = settings({"data": str(root), "image_size": 96, "epochs": 1, "batch": 8})
    start(chosen, run, ExecutionOptions(device="cpu", workers=0, threads=1), told)
    (text,) = told.notes
    assert text.startswith("starting from nothing")
    assert "dualtemp[pretrained]" in text
    made = yaml.safe_load((run / "config.yaml").read_text())
    assert (made["init"], made["backbone"], made["freeze"]) == (None, "resnet_mini", 0)
    with pytest.raises(UserError, match="pip install 'dualtemp"):
        find_start("imagenet")  # asked for by name, it is refused


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, True),
        ({"epochs": 3, "batch": 8, "method": "moco"}, True),
        ({"image_size": 128}, True),
        ({"init": "none"}, False),
        ({"backbone": "resnet_mini"}, False),
        ({"image_size": 64}, False),
        ({"method": "supervised"}, False),
        ({"method": "distil", "teacher": "imagenet"}, False),
    ],
)
def test_what_was_asked_for_decides(given: dict[str, Any], wanted: bool, tmp_path: Path) -> None:
    root = photographs(tmp_path / "photos", count=4)
    assert prefers_start(settings({"data": str(root), **given}), open_source(root)) is wanted


def test_small_images_and_named_sets_begin_from_nothing(tmp_path: Path) -> None:
    root = photographs(tmp_path / "small", side=80, count=4)
    assert default_start(settings({"data": str(root)}), open_source(root)) == (None, "")
    assert not prefers_start(settings({"data": "digits"}), open_source("digits"))


def test_the_paragraph_names_the_start_and_how_to_decline_it(timm_folder: Path, tmp_path: Path) -> None:
    root = photographs(tmp_path / "photos", count=8)
    splits, device, begin = open_source(root), torch.device("cpu"), find_start(str(timm_folder))
    for asked, declined in (({}, True), ({"init": str(timm_folder)}, False)):
        given = settings({"data": str(root), **asked})
        chosen, found = with_sensible_settings(given, splits, device, begin)
        assert found is not None
        text = paragraph(found, with_start(chosen, begin), splits, device, 60)
        assert f"begins from test_resnet of {timm_folder}" in text
        assert ("--init none" in text) is declined
        assert "resnet_mini" not in text
        assert chosen.image_size == 96
    assert image_size(splits)


def test_a_start_changes_the_choice_and_leaves_alone_what_was_given() -> None:
    facts, begun = Facts(800, 10, 224, True), Adapted("tf_efficientnet_lite0", 224)
    found = sensible(facts, "cpu", {"freeze": 3}, begun)
    assert "freeze" not in found
    assert (found["backbone"], found["image_size"], found["layer_decay"]) == ("tf_efficientnet_lite0", 224, 0.03)
    # No labels; too few to hold some out; too few of them with a label.
    for few in (Facts(800, 0, 224, True), Facts(99, 10, 224, True), Facts(5000, 2, 224, True, labeled=2)):
        assert "stop_below_start" not in sensible(few, "cpu", {}, begun)
    assert sensible(Facts(100, 10, 224, True), "cpu", {}, begun)["stop_below_start"]
    assert not ADAPTED.keys() & sensible(facts, "cpu", {}).keys()
