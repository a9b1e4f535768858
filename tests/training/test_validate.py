"""`--validate held-out`: measured on a tenth of the training images, and the test images are not looked at."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import several_processes
import torch
from command_processes import Commands
from PIL import Image

import dualtemp
from dualtemp.config import complete, settings
from dualtemp.data import open_source
from dualtemp.data.images import ImageSet, Splits
from dualtemp.data.sources.validation import held_out_for_validation
from dualtemp.grids.missing import find_missing
from dualtemp.grids.results import Results
from dualtemp.grids.worker import perform
from dualtemp.paper.reproduce import Request
from dualtemp.runs.folder import RunFolder
from dualtemp.training.run_data import describe_part, open_data, training_data

RUN: dict[str, Any] = {"backbone": "resnet_mini", "batch": 16, "epochs": 1, "warmup_epochs": 0, "quiet": True}
HELD: dict[str, Any] = {"validate": "held-out"}


def images(count: int, seed: int, side: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def npz(root: Path, test_seed: int = 1) -> Path:
    root.mkdir()
    np.savez(root / "train.npz", images=images(90, 0), labels=np.arange(90) % 3)
    labels = np.random.default_rng(test_seed).integers(0, 3, 30)
    np.savez(root / "test.npz", images=images(30, test_seed), labels=labels)
    return root


def files(root: Path, test_seed: int = 1) -> Path:
    for part, count, seed in (("train", 90, 0), ("test", 30, test_seed)):
        for number, pixels in enumerate(images(count, seed, 20)):
            path = root / part / f"class{number % 3}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).resize((20 + number % 2, 20)).save(path)
    return root


def rows(images: ImageSet) -> list[bytes]:
    assert isinstance(images.pixels, torch.Tensor)
    return [row.numpy().tobytes() for row in images.pixels]


def measured(metrics: dict[str, Any]) -> dict[str, Any]:
    timed = ("seconds", "images_per_second")
    return {name: value for name, value in metrics.items() if not name.startswith(timed)}


@pytest.mark.parametrize("source", [npz, pytest.param(files, marks=pytest.mark.slow)])
def test_other_test_images_change_nothing_of_a_run(source: Any, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"image_size": 16} if source is files else {}
    found = [
        dualtemp.train(
            data=str(source(tmp_path / f"{seed}")), **RUN, **HELD, **sizes, workers=0, out=tmp_path / f"r{seed}"
        )
        for seed in (1, 2)
    ]
    assert measured(found[0]) == measured(found[1])
    made = RunFolder(tmp_path / "r1").read_environment()
    assert (made["train"]["images"], made["test"]["images"]) == (81, 9)


def test_digits_hold_out_the_same_balanced_tenth_for_every_seed_and_train_on_none_of_it() -> None:
    whole = open_source("digits")
    found = [open_data(settings({"data": "digits", "seed": seed, **HELD})) for seed in (0, 1)]
    assert found[0].test is not None
    assert found[0].test.labels is not None
    assert found[1].test is not None
    assert found[0].test.fingerprint == found[1].test.fingerprint
    assert set(rows(found[0].test)) <= set(rows(whole.train)) - set(rows(found[0].train))
    counts = torch.bincount(found[0].test.labels).tolist()
    assert counts == [round(n / 10 + 1e-9) for n in torch.bincount(whole.train.labels).tolist()]  # pyright: ignore
    assert not set(rows(found[0].test)) & set(rows(whole.test))  # pyright: ignore
    data = training_data(settings({"data": "digits", "image_size": 8, **HELD}), found[0])
    assert data.bank is not None
    assert len(data.bank) == len(data.images) == len(whole.train) - len(found[0].test)


@pytest.mark.parametrize("amount", [100, 0.1, 1400])
def test_a_subset_is_drawn_from_what_remains(amount: int | float) -> None:
    left = open_data(settings({"data": "digits", **HELD}))
    few = open_data(settings({"data": "digits", "subset": amount, "seed": 3, **HELD}))
    assert few.test is not None
    assert left.test is not None
    assert few.test.fingerprint == left.test.fingerprint
    assert set(rows(few.train)) <= set(rows(left.train))
    assert len(few.train) == {100: 100, 0.1: round(len(left.train) / 10), 1400: len(left.train)}[amount]


def test_copies_of_held_out_images_are_neither_in_train_nor_among_the_unlabelled() -> None:
    pixels = torch.from_numpy(images(50, 0)).permute(0, 3, 1, 2)
    twice = torch.cat([pixels, pixels])
    splits = Splits(ImageSet("t", twice, torch.arange(100) % 5, tuple("abcde")), None, ImageSet("u", pixels))
    found = held_out_for_validation(splits)
    assert found.test is not None
    assert found.unlabeled is not None
    assert not set(rows(found.test)) & (set(rows(found.train)) | set(rows(found.unlabeled)))
    assert len(set(rows(found.test))) + len(found.unlabeled) == 50


def with_copies_unlabeled(root: Path) -> Path:
    """Every training image lies among the unlabeled ones as well."""
    np.savez(npz(root) / "unlabelled.npz", images=images(90, 0))
    return root


def test_what_tells_when_to_stop_is_not_learned_from_as_an_unlabeled_copy(tmp_path: Path) -> None:
    given = {"data": str(with_copies_unlabeled(tmp_path / "set")), "stop_below_start": True, "image_size": 8}
    data = training_data(complete(settings(given), 8), open_source(given["data"]))
    assert data.held_out is not None
    assert not set(rows(data.held_out)) & set(rows(data.images))
    assert len(data.images) == 2 * (90 - len(data.held_out))


def test_a_subset_leaves_out_all_unlabeled_images(tmp_path: Path) -> None:
    given = {"data": str(with_copies_unlabeled(tmp_path / "set"))}
    assert open_data(settings(given)).unlabeled is not None
    few = open_data(settings({**given, "subset": 20}))
    assert (few.unlabeled, len(few.pretraining)) == (None, 20)


def test_a_set_without_labels_holds_out_a_tenth_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", images=images(100, 0))
    metrics = dualtemp.train(data=str(tmp_path / "plain.npz"), **RUN, **HELD, out=tmp_path / "run")
    assert "spread" in metrics
    made = RunFolder(tmp_path / "run").read_environment()
    assert (made["train"]["images"], made["test"]["images"]) == (81, 9)  # a tenth is the test part, which is not taken


PROGRAM = """
from dualtemp.config import settings
from dualtemp.training.run_data import describe_part, open_data


def parts():
    splits = open_data(settings({"data": "digits", "subset": 200, "validate": "held-out"}))
    return [describe_part(part) for part in (splits.train, splits.test)]
"""


@pytest.mark.slow
def test_every_process_holds_out_the_same(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    alone = open_data(settings({"data": "digits", "subset": 200, **HELD}))
    expected = [describe_part(part) for part in (alone.train, alone.test)]
    assert several_processes.run(str(tmp_path / "program.py"), "parts", 2, tmp_path / "out") == [expected] * 2


@pytest.mark.slow
def test_a_run_goes_on_evaluates_and_reports_on_the_held_out_part(tmp_path: Path, commands: Commands) -> None:
    words = ("--data", npz(tmp_path / "data"), "--epochs", 2, "--batch", 16, "--backbone", "resnet_mini", "--quiet")
    ended = commands.run("train", *words, "--validate", "held-out", "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    ended = commands.run("resume", tmp_path / "run", "--epochs", 3, "--quiet")
    assert ended.code == 0, ended.err
    np.savez(tmp_path / "data" / "test.npz", images=images(4, 5), labels=np.zeros(4, np.int64))  # not looked at
    ended = commands.run("evaluate", tmp_path / "run", "--only", "knn", "--json", "--quiet")
    found = json.loads(ended.out)
    assert (found["part"], found["images"], found["labels"]) == ("held-out", 9, 81)
    ended = commands.run("evaluate", tmp_path / "run", "--only", "knn", "--quiet")
    assert "9 held-out training images" in ended.out
    assert "held-out training images" in (tmp_path / "run" / "report.html").read_text()


def test_a_grid_is_measured_on_held_out_images_under_keys_of_its_own(tmp_path: Path) -> None:
    usual = Request(["T-reverse"], "smoke", (1,), results=tmp_path)
    held = Request(["T-reverse"], "smoke", (1,), results=tmp_path, validate="held-out")
    jobs = find_missing(held, held.make_plan()).jobs
    names = {job.name for job in find_missing(usual, usual.make_plan()).jobs}
    assert len(names) == len(jobs)
    assert not names & {job.name for job in jobs}
    assert "--validate held-out" in held.command(jobs[0])
    status, _ = perform(jobs[0], Results(tmp_path), "cpu", keep=True)
    assert status == "done"
    made = RunFolder(Results(tmp_path).run_folder(jobs[0])).read_environment()
    expected = describe_part(open_data(settings({"data": "digits", **HELD})).test)
    assert expected is not None
    assert made["test"]["fingerprint"] == expected["fingerprint"]
