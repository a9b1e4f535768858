"""`dualtemp evaluate` on real runs, against scikit-learn on features of plain torch."""

import colorsys
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from command_processes import PATIENCE
from drawn_photos import draw_photos
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from dualtemp.cli import main
from dualtemp.data import open_source
from dualtemp.encoder.encoder import run_encoder
from dualtemp.evaluation.baselines import ColorHistogram, RawPixels, with_baselines
from dualtemp.evaluation.evaluate import evaluate
from dualtemp.evaluation.evaluation_file import add_to_evaluation, read_evaluation, result
from dualtemp.evaluation.few_shot import PENALTY
from dualtemp.evaluation.frozen_measures import frozen_measures, readable_features
from dualtemp.evaluation.judge import read_judged
from dualtemp.evaluation.labeled_data import labeled_data
from dualtemp.models import ResNetMini
from dualtemp.runs.evaluated_measures import START
from dualtemp.runs.folder import RunFolder

FROZEN = "knn,probe,few-shot"


@pytest.fixture(scope="module")
def measured(digits_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run of digits that was evaluated on its own validation set, and what came out."""
    torch.set_num_threads(1)
    run = shutil.copytree(digits_run, tmp_path_factory.mktemp("evaluated") / "run")
    return run, evaluate(run, only=FROZEN, quiet=True)


@pytest.fixture
def run(measured: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of that run, to be changed."""
    return shutil.copytree(measured[0], tmp_path / "run")


def value(found: dict[str, Any], name: str, encoder: str) -> dict[str, Any]:
    (row,) = (row for row in found["measured"] if (row["name"], row["encoder"]) == (name, encoder))
    return row


def digit_features(run: Path, encoder: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features and labels of the 128 digits that the run has seen and of the test digits, by plain torch in float64."""
    splits = open_source("digits")
    facts = json.loads((run / "environment.json").read_text())["images"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ResNetMini(8, 1)  # as the seed makes it
    if encoder == "trained":
        model.load_state_dict(safetensors.torch.load_file(run / "backbone.safetensors"))
    plain = torch.nn.Flatten() if encoder == "raw pixels" else model.double().eval()
    found: list[np.ndarray] = []
    for images in (splits.train.subset(128, 0), splits.test):
        assert images is not None
        assert isinstance(images.pixels, torch.Tensor)
        assert images.labels is not None
        with torch.no_grad():
            rows = plain((images.pixels.double() / 255 - facts["mean"][0]) / facts["std"][0])
        found += [rows.numpy(), images.labels.numpy()]
    return found[0], found[1], found[2], found[3]


@pytest.mark.parametrize("encoder", ["raw pixels", "untrained", "trained"])
def test_knn_agrees_with_scikit_learn(measured: tuple[Path, dict[str, Any]], encoder: str) -> None:
    run, found = measured
    train, labels, test, truth = digit_features(run, encoder)
    votes: Any = lambda distance: np.exp(-distance / 0.1)  # noqa: E731
    peer = KNeighborsClassifier(128, metric="cosine", weights=votes)
    right = peer.fit(train, labels).score(test, truth)
    assert value(found, "kNN", encoder)["top1"] == pytest.approx(100 * right, abs=0.3)  # one image of 359


@pytest.mark.parametrize("encoder", ["raw pixels", "untrained", "trained"])
def test_few_labels_agree_with_scikit_learn(measured: tuple[Path, dict[str, Any]], encoder: str) -> None:
    run, found = measured
    train, labels, test, truth = digit_features(run, encoder)
    scaler = StandardScaler().fit(train)
    numbers = torch.arange(128, dtype=torch.uint8).view(-1, 1, 1, 1)
    places = open_source("digits").train.subset(128, 0)
    right = []
    for draw in range(5):
        # 1 % and 5 % of 128 labels are fewer than the ten classes: one of each is taken, and shown once.
        taken = type(places)("numbers", numbers, places.labels, channels=1).subset(10, draw).pixels
        assert isinstance(taken, torch.Tensor)
        index = taken.flatten().numpy()
        assert sorted(labels[index]) == list(range(10))
        peer = LogisticRegression(C=1 / (10 * PENALTY * train.shape[1]), tol=1e-8, max_iter=5000)
        peer.fit(scaler.transform(train[index]), labels[index])
        right.append(100 * peer.score(scaler.transform(test), truth))
    row = value(found, "1 label a class", encoder)
    assert row["top1"] == pytest.approx(np.mean(right), abs=0.3)
    assert row["deviation"] == pytest.approx(np.std(right, ddof=1), abs=0.3)
    assert (row["labels"], row["draws"], row["images"]) == (10, 5, 359)
    assert value(found, "10 % of labels", encoder)["labels"] == 13
    names = {row["name"] for row in found["measured"]}
    assert names == {"kNN", "linear probe", "1 label a class", "10 % of labels"}


@pytest.mark.parametrize("encoder", ["raw pixels", "trained"])
def test_the_probe_is_about_as_good_as_scikit_learns_best(measured: tuple[Path, dict[str, Any]], encoder: str) -> None:
    run, found = measured
    train, labels, test, truth = digit_features(run, encoder)
    scaler = StandardScaler().fit(train)
    scores = [
        100
        * LogisticRegression(C=1 / (128 * penalty), max_iter=2000)
        .fit(scaler.transform(train), labels)
        .score(scaler.transform(test), truth)
        for penalty in (1.0, 0.1, 0.01, 0.001)
    ]
    # The penalty is chosen by a few held-out images; one of these fits it is.
    assert min(scores) - 0.5 < value(found, "linear probe", encoder)["top1"] < max(scores) + 0.5


def test_answers_are_counted_image_by_image_and_class_by_class(measured: tuple[Path, dict[str, Any]]) -> None:
    run, found = measured
    votes: Any = lambda distance: np.exp(-distance / 0.1)  # noqa: E731
    answers, truth = {}, np.zeros(0)
    for encoder in ("trained", "raw pixels"):
        train, labels, test, truth = digit_features(run, encoder)
        answers[encoder] = KNeighborsClassifier(128, metric="cosine", weights=votes).fit(train, labels).predict(test)
    right = {encoder: answered == truth for encoder, answered in answers.items()}
    ((ahead, behind),) = value(found, "kNN", "raw pixels")["pairs"]
    assert abs(ahead - (right["trained"] & ~right["raw pixels"]).sum()) <= 1  # one image of 359 may round otherwise
    assert abs(behind - (right["raw pixels"] & ~right["trained"]).sum()) <= 1
    row = value(found, "kNN", "trained")
    counted = confusion_matrix(truth, answers["trained"])
    table = np.zeros((10, 10), int)
    for one in row["by_class"]:
        table[int(one["class"]), int(one["class"])] = one["right"]
    for one in row["confused"]:
        table[int(one["class"]), int(one["as"])] = one["images"]
    assert np.abs(table - counted).sum() <= 2
    assert [one["images"] for one in row["by_class"]] == np.bincount(truth).tolist()
    images = [one["images"] for one in row["confused"]]
    assert images == sorted(images, reverse=True)
    draws = value(found, "10 % of labels", "untrained")["pairs"]
    gain = value(found, "10 % of labels", "trained")["top1"] - value(found, "10 % of labels", "untrained")["top1"]
    assert 100 * np.mean([b - c for b, c in draws]) / 359 == pytest.approx(gain)
    assert "pairs" not in row


def test_the_online_figures_are_those_of_the_last_epoch(measured: tuple[Path, dict[str, Any]]) -> None:
    run, found = measured
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    probe = value(found, "linear probe", "online")
    assert (probe["top1"], probe["top5"]) == (last["probe_top1"], last["probe_top5"])
    assert value(found, "kNN", "online")["top1"] == last["knn_top1"]
    assert found["step"] == last["step"]


def test_frozen_measures_leave_the_encoder_as_it_is(run: Path) -> None:
    encoder = run_encoder(run, "cpu")
    before = {name: tensor.clone() for name, tensor in encoder.backbone.state_dict().items()}
    found = labeled_data(run, encoder.settings, None)
    rows = list(frozen_measures({"trained": encoder}, found, {"knn", "probe"}, 0, 0, {}))
    assert [row["name"] for row in rows] == ["kNN", "linear probe"]
    assert all(torch.equal(before[name], tensor) for name, tensor in encoder.backbone.state_dict().items())
    assert not encoder.backbone.training


def test_raw_pixels_are_means_over_squares_at_most_16_by_16() -> None:
    images = np.random.default_rng(0).normal(size=(2, 3, 64, 64))
    expected = images.reshape(2, 3, 16, 4, 16, 4).mean((3, 5)).reshape(2, -1)
    np.testing.assert_allclose(RawPixels()(torch.from_numpy(images)).numpy(), expected)
    small = torch.randn(2, 1, 8, 8)
    assert torch.equal(RawPixels()(small), small.flatten(1))
    for size in (17, 50, 223, 224):
        assert 1 <= RawPixels()(torch.zeros(1, 1, size, size)).shape[1] <= 256


def histogram_by_hand(pixels: np.ndarray) -> np.ndarray:
    """Of one image (C, H, W) from 0 to 1, by numpy and Python's colorsys: whole, then quarters, row by row."""
    below, right = ((slice(0, side // 2), slice(side // 2, None)) for side in pixels.shape[1:])
    areas = [(slice(None), slice(None)), *product(below, right)]
    found: list[np.ndarray] = []
    if len(pixels) == 3:
        hues = np.apply_along_axis(lambda rgb: np.array(colorsys.rgb_to_hsv(*rgb)), 0, pixels)
        hue, saturation = hues[0], hues[1]
        limits = [(0, 1), (0, 1)]
        colours = [np.histogram2d(hue[a].ravel(), saturation[a].ravel(), (8, 4), limits)[0] for a in areas]
        found += [each.ravel() / each.sum() for each in colours]
        pixels = hues[2:]
    values = [np.histogram(channel[area], 32, (0, 1))[0] for channel in pixels for area in areas]
    return np.sqrt(np.concatenate([*found, *(each / each.sum() for each in values)]))


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_colour_histograms_are_those_of_colorsys_and_grey_ones_of_the_intensity(channels: int) -> None:
    pixels = np.random.default_rng(channels).random((4, channels, 6, 8))
    pixels[0, :, :3] = 0.5  # grey has hue 0 and saturation 0
    pixels[1] = (np.arange(channels) == 0).astype(float)[:, None, None]  # pure red, or black and white
    mean, std = (0.5, 0.25, 0.125)[:channels], (0.25, 0.5, 0.125)[:channels]
    seen = (pixels - np.reshape(mean, (-1, 1, 1))) / np.reshape(std, (-1, 1, 1))
    histogram = ColorHistogram(mean, std).double()
    found = histogram(torch.from_numpy(seen)).numpy()
    np.testing.assert_allclose(found, [histogram_by_hand(each) for each in pixels], atol=1e-6)


def test_the_encoders_that_are_compared_differ_in_the_backbone_alone(run: Path) -> None:
    encoders = with_baselines(run_encoder(run, "cpu"))
    trained, untrained = (encoders[name].backbone.state_dict() for name in ("trained", "untrained"))
    assert all(not torch.equal(trained[name], untrained[name]) for name in trained)
    assert len({id(each.views) for each in encoders.values()}) == 1


def test_it_tells_of_how_many_images_there_are_features(digits_run: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    run = shutil.copytree(digits_run, tmp_path / "run")
    found = evaluate(run, only="knn", device="cpu", quiet=True, progress=lambda *counts: told.append(counts))
    learned, asked = found["labels"], found["images"]
    assert told.count((learned, learned)) == told.count((asked, asked)) == 1  # read once for all encoders


def test_results_are_kept_and_shown_on_the_page(measured: tuple[Path, dict[str, Any]]) -> None:
    run, found = measured
    kept = json.loads((run / "evaluation.json").read_text())
    assert kept["measured"] == found["measured"]
    assert (kept["step"], kept["made"]) == (found["step"], found["made"])
    page = (run / "report.html").read_text()
    assert "10 % of labels" in page
    assert f"{value(found, 'linear probe', 'trained')['top1']:.2f}" in page


def test_the_command_prints_a_table_fine_tunes_and_keeps_what_was_there(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = (run / "backbone.safetensors").read_bytes()
    words = ["evaluate", str(run), "--only", "knn,fine-tune", "--fine-tune-epochs", "2", "--device", "cpu"]
    assert main(words) == 0
    said = capsys.readouterr()
    lines = {line.split("  ")[0]: line.split() for line in said.out.splitlines()}
    rows = {(row["name"], row["encoder"]): row for row in read_evaluation(run)["measured"]}
    assert lines["kNN"][2:] == [
        f"{rows['kNN', encoder]['top1']:.2f}"
        for encoder in ("raw pixels", "colour histogram", "untrained", "trained", "online")
    ]
    assert lines["fine-tuning"][-5:] == [
        "-",
        "-",
        *(f"{rows['fine-tuning', encoder]['top1']:.2f}" for encoder in ("untrained", "trained")),
        "-",
    ]
    assert "each 2 epochs of 128 images: about" in said.err
    assert "color histogram: kNN" in said.err, "as pages call it, whatever its name in the file"
    assert "colour" not in said.out
    assert said.err.index("about") < said.err.index("epoch 1/2")
    assert ("linear probe", "trained") in rows
    assert (run / "backbone.safetensors").read_bytes() == weights
    again = evaluate(run, only=["fine-tune"], fine_tune_epochs=2, quiet=True)
    for encoder in ("trained", "untrained"):
        assert value(again, "fine-tuning", encoder)["top1"] == rows["fine-tuning", encoder]["top1"]


def test_other_data_stand_beside_the_runs_own_and_json_is_all_that_is_printed(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)
    images[::2, :4] = 0  # what tells the classes apart
    np.savez(tmp_path / "halves.npz", images=images, labels=np.arange(40) % 2)
    before = read_evaluation(run)["measured"]
    assert main(["evaluate", str(run), "--data", str(tmp_path / "halves.npz"), "--only", "probe", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["data"], found["images"], found["labels"], found["classes"]) == ("halves", 4, 36, 2)
    assert {row["encoder"] for row in found["measured"]} == {"raw pixels", "colour histogram", "untrained", "trained"}
    assert {row["top5"] for row in found["measured"]} == {None}  # of two classes it means nothing
    assert value(found, "linear probe", "raw pixels")["top1"] == 100
    after = read_evaluation(run)["measured"]
    assert after == before + found["measured"]


def test_colour_files_with_one_that_is_broken_and_a_class_of_one_image(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, label in enumerate(("cat", "dog")):
        draw_photos(tmp_path / "mine" / label, 12, first=100 * place)
    draw_photos(tmp_path / "mine" / "owl", 1, first=300)
    Image.new("RGB", (200, 100)).save(tmp_path / "mine" / "dog" / "big.png")
    whole = (tmp_path / "mine" / "cat" / "003.png").read_bytes()
    (tmp_path / "mine" / "cat" / "003.png").write_bytes(whole[: len(whole) // 2])
    words = ["--only", "knn,fine-tune", "--fine-tune-epochs", "1", "--workers", "0", "--json"]
    assert main(["evaluate", str(run), "--data", str(tmp_path / "mine"), *words]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    splits = open_source(tmp_path / "mine")
    assert splits.test is not None
    broken_is_tested = "cat/003.png" in splits.test.pixels.names  # pyright: ignore
    row = value(found, "kNN", "trained")
    assert row["images"] + row["labels"] == len(splits.train) + len(splits.test) - 1
    assert row["images"] == len(splits.test) - broken_is_tested
    assert value(found, "fine-tuning", "trained")["images"] == row["images"]
    assert "cat/003.png" in said.err
    assert "no test image of owl" in said.err


def test_labels_stay_with_their_images_where_a_file_cannot_be_read(digits_run: Path, tmp_path: Path) -> None:
    for place, label in enumerate(("cat", "dog")):
        draw_photos(tmp_path / "mine" / "train" / label, 4, first=10 * place)
        draw_photos(tmp_path / "mine" / "test" / label, 1, first=10 * place + 5)
    (tmp_path / "mine" / "train" / "cat" / "001.png").write_bytes(b"no image")
    problems: dict[str, str] = {}
    encoders = with_baselines(run_encoder(digits_run, "cpu"))
    features, labels = readable_features(encoders, open_source(tmp_path / "mine").train, 0, problems)
    assert features["trained"].shape == (7, 128)
    assert {len(each) for each in features.values()} == {7}
    assert labels.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert set(problems) == {"train/cat/001.png"}


@pytest.mark.parametrize("lost", ["train", "both"])
@pytest.mark.parametrize("words", [["--only", "knn,probe"], ["--only", "fine-tune", "--fine-tune-epochs", "1"]])
def test_a_class_without_a_readable_image_to_learn_from_is_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], lost: str
) -> None:
    folder = tmp_path / "mine"
    for place, label in enumerate(("cat", "dog")):
        draw_photos(folder / "train" / label, 6, first=100 * place)
        draw_photos(folder / "test" / label, 2, first=100 * place + 50)
    for path in (folder / "train" / "dog").iterdir():
        path.write_bytes(b"no image")
    if lost == "both":
        shutil.rmtree(folder / "test" / "dog")
    before = read_evaluation(run)["measured"]
    assert main(["evaluate", str(run), "--data", str(folder), *words, "--workers", "0"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("dualtemp")
    expected = {
        "train": f"{folder}: class 'dog' has test images but none to learn from that can be read",
        "both": f"{folder}: images of one class only can be read, 'cat'",
    }
    assert expected[lost] in last
    assert read_evaluation(run)["measured"] == before


def test_labels_of_a_file_are_measured_on_test_images_also_of_a_run_that_holds_images_out(
    run_copy: Path, photos: Path, tmp_path: Path
) -> None:
    config = run_copy / "config.yaml"
    config.write_text(config.read_text().replace("validate: test", "validate: held-out"))
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.*g"))
    (tmp_path / "own.csv").write_text("file,label\n" + "".join(f"{name},{name.split('/')[1]}\n" for name in names))
    how = {"only": "knn", "workers": 0, "device": "cpu", "quiet": True}
    asked, own = evaluate(run_copy, labels=tmp_path / "own.csv", **how), evaluate(run_copy, **how)
    assert (asked["part"], asked["images"]) == ("test", sum(name.startswith("test/") for name in names))
    assert own["part"] == "held-out"


@pytest.mark.slow
def test_unreadable_files_are_told_once_and_not_counted_in_any_row(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mine"
    for place, label in enumerate(("cat", "dog")):
        draw_photos(folder / "train" / label, 12, first=100 * place)
        draw_photos(folder / "test" / label, 4, first=100 * place + 50)
    for name in ("train/cat/003.png", "train/dog/107.png", "test/cat/051.png"):
        (folder / name).write_bytes(b"no image")
    (folder / "train" / "dog" / "holiday.HEIC").write_bytes(b"heic")
    words = ["evaluate", str(run), "--data", str(folder), "--only", "knn,probe,fine-tune", "--workers", "0", "--json"]
    assert main([*words, "--fine-tune-epochs", "12"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert {(row["images"], row["labels"]) for row in found["measured"]} == {(7, 22)}
    assert (found["images"], found["labels"]) == (7, 22)
    told = [line for line in said.err.splitlines() if "could not be read" in line]
    assert len(told) == 1
    assert told[0].startswith("4 files could not be read and were left out, the first test/cat/051.png")
    epochs = [line for line in said.err.splitlines() if "fine-tuning, epoch" in line]
    assert len(epochs) <= 10
    assert "epoch 12/12" in epochs[-1]
    assert main([*words, "--only", "fine-tune", "--fine-tune-epochs", "2"]) == 0
    said = capsys.readouterr()
    assert {(row["images"], row["labels"]) for row in json.loads(said.out)["measured"]} == {(7, 22)}


@pytest.mark.parametrize(
    ("after", "told"), [(1, "evaluation.json holds what was measured"), (0, "nothing was measured")]
)
def test_an_interruption_says_what_is_kept(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, after: int, told: str
) -> None:
    def interrupted(*given: Any) -> Iterator[dict[str, Any]]:
        yield from islice(frozen_measures(*given), after)
        raise KeyboardInterrupt

    monkeypatch.setattr("dualtemp.evaluation.evaluate.frozen_measures", interrupted)
    (run / "evaluation.json").unlink()
    assert main(["evaluate", str(run), "--only", "knn,probe"]) == 130
    assert f"dualtemp: interrupted; {run / 'evaluation.json' if after else ''}".rstrip() in (
        said := capsys.readouterr().err
    )
    assert said.endswith(f"{told}\n")
    kept = {(row["name"], row["encoder"]) for row in read_evaluation(run)["measured"]}
    assert kept == ({("kNN", "trained"), ("kNN", "online"), ("linear probe", "online")} if after else set())


def test_folders_of_the_same_name_and_files_of_labels_stand_beside_each_other(run_copy: Path, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    for n, site in enumerate(("north", "south")):
        for i, image in enumerate(images[n::2]):
            path = tmp_path / site / "test" / str(i % 2) / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    for name in ("age.csv", "sex.csv"):
        lines = [f"{i % 2}/{i}.png,{'even' if (i // 2) % 2 else 'odd'}" for i in range(20)]
        (tmp_path / name).write_text("file,label\n" + "\n".join(lines) + "\n")
    north, south = tmp_path / "north" / "test", tmp_path / "south" / "test"
    asked = [(north, None), (south, None), (north, None), (south, tmp_path / "age.csv"), (south, tmp_path / "sex.csv")]
    found = [evaluate(run_copy, data, labels=labels, only="knn", quiet=True)["data"] for data, labels in asked]
    assert found == ["test", "south/test", "test", "test, labels of age.csv", "test, labels of sex.csv"]
    measured = [row for row in read_evaluation(run_copy)["measured"] if row["encoder"] == "trained"]
    assert {row["data"] for row in measured} >= set(found)
    for name in set(found):
        assert name in (run_copy / "report.html").read_text()


def test_results_of_other_weights_are_dropped_and_a_damaged_file_is_no_obstacle(tmp_path: Path) -> None:
    first, second = (result("kNN", encoder, "validation", 0.5, None, 9, 90) for encoder in ("trained", "untrained"))
    add_to_evaluation(tmp_path, 10, [first])
    assert add_to_evaluation(tmp_path, 10, [second])["measured"] == [second, first]  # in the order of the table
    better = {**first, "top1": 60.0}
    assert add_to_evaluation(tmp_path, 10, [better])["measured"] == [second, better]
    assert add_to_evaluation(tmp_path, 20, [second])["measured"] == [second]
    for damage in ("", "[1]", '{"step": 20, "made": "", "measured": [3]}', '{"measured": null}'):
        (tmp_path / "evaluation.json").write_text(damage)
        assert add_to_evaluation(tmp_path, 20, [first])["measured"] == [first]


def make_sources(folder: Path) -> None:
    """Data that cannot be measured with."""
    draw_photos(folder / "flat", 12)
    draw_photos(folder / "one" / "cat", 12)
    for place, label in enumerate(("cat", "dog")):
        draw_photos(folder / "single" / label, 1, first=place)
    for part, label in (("train", "cat"), ("train", "dog"), ("test", "cat"), ("test", "owl")):
        draw_photos(folder / "unknown" / part / label, 2)
    pixels = np.zeros((20, 8, 8, 2), np.uint8) + np.arange(20, dtype=np.uint8)[:, None, None, None]
    np.savez(folder / "two.npz", images=pixels, labels=np.arange(20) % 2)
    np.savez(folder / "bare.npz", images=pixels[..., :1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["RUN", "--data", "flat"], "has no labels: expected class folders"),
        (["RUN", "--data", "bare.npz"], "has no labels"),
        (["RUN", "--data", "one"], "one class only, 'cat'"),
        (["RUN", "--data", "single"], "every class has one image"),
        (["RUN", "--data", "unknown"], "class 'owl' is in the test part only"),
        (["RUN", "--data", "two.npz"], "images of 2 channels"),
        (["RUN", "--data", "nowhere/at/all"], "no such folder"),
        (["RUN", "--only", "knn,probes"], "did you mean 'probe'?"),
        (["RUN", "--only", ""], "no measure is called ''"),
        (["RUN", "--only", "fine-tune", "--no-fine-tune"], "nothing is left to measure"),
        (["RUN", "--fine-tune-epochs", "0"], "at least 1, got 0"),
        (["RUN", "--only", "knn", "--fine-tune-epochs", "5"], "nothing is fine-tuned here"),
        (["RUN", "--seed", "-1"], "--seed must be from 0 to 2^63 - 1"),
        (["RUN", "--seed", "100000000000000000000"], "--seed must be from 0 to 2^63 - 1"),
        (["RUN", "--workers", "-1"], "--workers must be from 0 to"),
        (["RUN", "--device", "cuda:77"], "try --device cpu"),
        (["flat"], "is not a run"),
        (["nowhere"], "is not a run"),
        ([], "RUN"),
        (["UNLABELLED"], "was trained without labels: give labeled images, --data"),
    ],
)
def test_a_mistake_is_one_line_exit_code_2_and_nothing_changed(
    words: list[str],
    said: str,
    measured: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    make_sources(tmp_path)
    run = measured[0]
    unlabelled = shutil.copytree(run, tmp_path / "unlabelled")
    config = (unlabelled / "config.yaml").read_text()
    (unlabelled / "config.yaml").write_text(config.replace("labels: true", "labels: false"))
    before = {path: path.read_bytes() for path in (*run.glob("*.*"), *unlabelled.glob("*.*"))}
    places = {"RUN": str(run), "UNLABELLED": str(unlabelled)}
    assert main(["evaluate", *(places.get(word, word) for word in words)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1
    assert said in told.err
    assert {path: path.read_bytes() for path in before} == before
    assert set(before) == {*run.glob("*.*"), *unlabelled.glob("*.*")}


def test_copies_of_test_images_among_those_to_learn_from_are_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own").mkdir()
    digits: Any = open_source("digits").train
    for part, chosen in (("train", slice(0, 60)), ("test", slice(58, 90))):
        pixels = digits.pixels[chosen].permute(0, 2, 3, 1).numpy()
        np.savez(tmp_path / "own" / f"{part}.npz", images=pixels, labels=digits.labels[chosen].numpy())
    evaluate(run, tmp_path / "own", only="knn")
    told = capsys.readouterr().err
    assert "exact copies of test images among the training images, so accuracies are too high: 2, the first" in told
    evaluate(run, only="knn")
    assert "copies" not in capsys.readouterr().err


def test_test_images_that_are_not_those_of_the_beginning_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, label in enumerate(("cat", "dog")):
        draw_photos(tmp_path / "mine" / label, 20, first=100 * place)
    words = ["--epochs", "1", "--image-size", "16", "--batch", "8", "--workers", "0", "--init", "none", "--quiet"]
    assert main(["train", "--data", str(tmp_path / "mine"), *words, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    evaluate(tmp_path / "run", only="knn")
    assert "no longer those" not in capsys.readouterr().err
    for name in list(open_source(tmp_path / "mine").test.source.names)[:2]:  # pyright: ignore
        (tmp_path / "mine" / name).unlink()
    evaluate(tmp_path / "run", only="knn")
    told = capsys.readouterr().err
    assert (
        told.count("the images to measure with are no longer those that the run began with; it may have learned") == 1
    )


def test_processes_that_measure_a_run_at_once_lose_no_result(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from dualtemp.evaluation.evaluation_file import add_to_evaluation, result\n"
        "from dualtemp.evaluation.judge import keep_judged\n"
        "measures = {'cluster_learnability': 0.5, 'intrinsic_dimension': 9.0}\n"
        "for i in range(15):\n"
        "    row = result(f'{sys.argv[2]} {i}', 'trained', 'validation', 0.5, None, 1, 1)\n"
        "    add_to_evaluation(Path(sys.argv[1]), 7, [row])\n"
        "    keep_judged(Path(sys.argv[1]), 100 * int(sys.argv[2]) + i, measures)"
    )
    words = [[sys.executable, "-c", code, str(tmp_path), str(number)] for number in range(3)]
    processes = [subprocess.Popen(each) for each in words]
    assert [process.wait(PATIENCE) for process in processes] == [0, 0, 0]
    assert len(read_evaluation(tmp_path)["measured"]) == 45
    assert len(read_judged(tmp_path)) == 45
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evaluation.json", "judge.json"]


def test_what_a_run_began_from_reads_images_by_the_runs_levels(run_copy: Path) -> None:
    folder = RunFolder(run_copy)
    shutil.copy(folder.backbone, folder.start)
    environment = folder.read_environment()
    wanted = {**environment["images"], "size": 32, "interpolation": "bilinear", "crop": 0.9}
    (run_copy / "environment.json").write_text(json.dumps({**environment, "start": {"input": wanted}}))
    encoder, levels = run_encoder(run_copy, "cpu"), ((0.0, 4095.0),)
    encoder.views.levels = levels
    start = with_baselines(encoder)[START].views
    assert (start.size, start.interpolation, start.levels) == (32, "bilinear", levels)
