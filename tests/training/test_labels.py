"""Where labels go: none to the probe that are none, none needed to train, clean ones to evaluate."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_photos import draw_photos
from made_runs import made_run
from run_contents import everything

import dualtemp
from dualtemp.config import complete, settings
from dualtemp.data import open_source
from dualtemp.data.images import ImageSet, Splits
from dualtemp.data.training_data import TrainingData
from dualtemp.errors import UserError
from dualtemp.evaluation.probe import OnlineProbe
from dualtemp.frameworks import build_framework, frameworks, registry
from dualtemp.frameworks.simco import SimCo
from dualtemp.runs.folder import RunFolder
from dualtemp.training.observers.display import Display
from dualtemp.training.run_data import describe_part, open_data, refuse_other_data, training_data
from dualtemp.training.train_step import TrainStep
from dualtemp.training.trainer import Trainer

RUN: dict[str, Any] = {"backbone": "resnet_mini", "batch": 64, "epochs": 1, "warmup_epochs": 0, "quiet": True}


def test_images_without_a_label_never_reach_the_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = open_source("digits")
    train, test = digits.train.take(np.arange(100)), digits.test
    rest = digits.train.take(np.arange(100, 400))
    splits = Splits(train, test, ImageSet("rest", rest.pixels, None, (), channels=1))
    chosen = complete(settings({"data": "digits", **{k: v for k, v in RUN.items() if k != "quiet"}}), 8)
    data: TrainingData = training_data(chosen, splits)
    assert len(data.images) == 400
    assert (data.images.labels == -1).sum() == 300  # pyright: ignore
    seen: list[torch.Tensor] = []
    learn = OnlineProbe.learn
    monkeypatch.setattr(
        OnlineProbe, "learn", lambda self, f, labels, lr: (seen.append(labels), learn(self, f, labels, lr))[1]
    )
    run = RunFolder(tmp_path)
    run.checkpoints.mkdir()
    method = build_framework(chosen, 1, data.classes)
    metrics = Trainer(chosen, method, data, run, torch.device("cpu"), Display(quiet=True)).train()
    assert len(seen) == 6
    labels = torch.cat(seen)
    assert 0 < len(labels) <= 100
    assert labels.min() >= 0
    assert metrics["probe_top1"] > 0


@pytest.mark.parametrize(("method", "probed"), [("supervised", False), ("own", True)])
def test_only_a_classifier_stands_in_for_the_probe(method: str, probed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(SimCo):
        learns_from_labels = True

    assert "own" not in frameworks()  # which loads all of them first
    monkeypatch.setitem(registry._registry._declared, "own", Own)
    some = {"data": "digits", "subset": 100, "backbone": "resnet_mini", "batch": 64}
    chosen = complete(settings({**some, "method": method}), 8)
    data = training_data(chosen, open_data(chosen))
    step = TrainStep(chosen, build_framework(chosen, 1, data.classes), data, torch.device("cpu"))
    assert (step.probe is not None) == probed


def test_a_set_without_labels_trains_and_has_a_spread_alone(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", images=np.random.default_rng(0).integers(0, 255, (200, 8, 8, 3), dtype=np.uint8))
    metrics = dualtemp.train(data=str(tmp_path / "plain.npz"), **RUN, out=tmp_path / "run")
    assert "spread" in metrics
    assert metrics["collapsed"] is False
    assert not {"probe_top1", "knn_top1"} & metrics.keys()
    assert dualtemp.resume(tmp_path / "run", 2, quiet=True)["epoch"] == 2


@pytest.mark.parametrize(
    ("method", "others", "goes_on"),
    [
        ("supervised", ("cow", "dog"), False),
        ("supervised", ("dog", "cat"), False),
        ("simco", ("cow", "dog"), False),
        ("simco", ("dog", "cat"), True),  # it only measures itself with them
    ],
)
def test_a_run_on_files_does_not_go_on_with_other_classes_or_labels_that_it_learns_from(
    method: str, others: tuple[str, str], goes_on: bool, tmp_path: Path
) -> None:
    root, run = tmp_path / "photos", tmp_path / "run"
    paths = draw_photos(root, 30)

    def write_labels(classes: tuple[str, str]) -> None:
        lines = ["name,label", *(f"{path.name},{classes[number % 2]}" for number, path in enumerate(paths))]
        (root / "labels.csv").write_text("\n".join(lines))

    write_labels(("cat", "dog"))
    small = {**RUN, "batch": 8, "image_size": 16, "workers": 0, "threads": 1, "page": False}
    dualtemp.train(data=str(root), **{**small, "method": method}, out=run)
    write_labels(others)
    if not goes_on:
        with pytest.raises(UserError, match="images, but others, or other labels; put them back"):
            dualtemp.resume(run, 2, quiet=True)
        environment = json.loads((run / "environment.json").read_text())
        for part in ("train", "test"):
            assert [len(environment[part].pop(name)) for name in ("labels", "classes")] == [32, 32]
        (run / "environment.json").write_text(json.dumps(environment))  # as runs were begun before they were recorded
    assert dualtemp.resume(run, 2, quiet=True)["epoch"] == 2


def test_a_run_that_holds_images_out_by_their_labels_does_not_go_on_with_other_labels(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    paths = draw_photos(root, 30)

    def write_labels(classes: tuple[str, str]) -> None:
        lines = ["name,label", *(f"{path.name},{classes[number % 2]}" for number, path in enumerate(paths))]
        (root / "labels.csv").write_text("\n".join(lines))

    write_labels(("cat", "dog"))
    splits = open_source(root)
    run = made_run(tmp_path / "run", [{"loss": 1.0}], data=str(root), stop_below_start=True, init="imagenet")
    environment = {name: describe_part(part) for name, part in splits.parts().items()}
    (run / "environment.json").write_text(json.dumps(environment))
    refuse_other_data(RunFolder(run), splits)
    write_labels(("dog", "cat"))
    with pytest.raises(UserError, match="other labels; put them back"):
        refuse_other_data(RunFolder(run), open_source(root))


@pytest.mark.slow
def test_noisy_labels_are_learned_and_clean_ones_evaluated(tmp_path: Path) -> None:
    words = {
        "data": "digits",
        "method": "supervised",
        "label_noise": 0.4,
        **{k: v for k, v in RUN.items() if k != "quiet"},
    }
    splits, clean = open_data(settings(words)), open_source("digits")
    assert splits.train.labels is not None
    assert splits.test is not None
    changed = (splits.train.labels != clean.train.labels).double().mean()
    assert changed == pytest.approx(0.4, abs=0.01)
    assert torch.equal(splits.test.labels, clean.test.labels)  # pyright: ignore
    metrics = dualtemp.train(**{**words, "epochs": 8, "lr": 0.2, "evaluate_every": 8}, quiet=True, out=tmp_path / "run")
    assert metrics["probe_top1"] > 65, "more than the 60 % of labels that were left right"


def test_an_epoch_is_as_many_whole_batches_as_there_are(tmp_path: Path) -> None:
    metrics = dualtemp.train(data="digits", subset=200, **{**RUN, "epochs": 2}, out=tmp_path / "run")
    assert metrics["step"] == 2 * (200 // 64)
    assert [line["step"] for line in everything(tmp_path / "run")["metrics"]] == [3, 6]


def test_neighbours_of_own_images_are_chosen_among_labelled_ones_and_written_down(tmp_path: Path) -> None:
    digits = open_source("digits")
    few, rest = digits.train.take(np.arange(60)), digits.train.take(np.arange(60, 400))
    assert digits.test is not None
    (tmp_path / "own").mkdir()
    for name, part in (("train", few), ("test", digits.test), ("unlabelled", rest)):
        labels: dict[str, Any] = {} if name == "unlabelled" else {"labels": part.labels.numpy()}  # pyright: ignore
        pixels: Any = part.pixels
        np.savez(tmp_path / "own" / f"{name}.npz", images=pixels.permute(0, 2, 3, 1).numpy(), **labels)
    metrics = dualtemp.train(data=str(tmp_path / "own"), **RUN, out=tmp_path / "run")
    assert RunFolder(tmp_path / "run").settings().knn == "auto"
    assert metrics["knn_k"] in (1, 5, 10, 20, 50)  # of 60 labelled images, however many others there are
    rows = dualtemp.evaluate(tmp_path / "run", only="knn", quiet=True)["measured"]
    trained = next(row for row in rows if row["encoder"] == "trained")
    assert (trained["k"], trained["top1"]) == (metrics["knn_k"], pytest.approx(metrics["knn_top1"]))
