"""pictures.json of real runs: what it says against float64 brute force, and what it shows against the views."""

import base64
import io
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dualtemp.analysis.pictures import collect_pictures, take_pictures
from dualtemp.analysis.thumbnails import tiles
from dualtemp.analysis.trained_run import TrainedRun, open_trained_run
from dualtemp.errors import UserError

RunOf = Callable[[str], Path]
METHODS = ("moco", "simclr", "byol", "supervised")  # a dictionary, one temperature, a predictor, no anchors


def tile(found: dict[str, Any], number: int) -> np.ndarray:
    """A tile of the sheet, as a page would cut it out."""
    sheet = np.array(Image.open(io.BytesIO(base64.b64decode(found["sheet"].split(",")[1]))).convert("L"), dtype=float)
    side, columns = found["tile"], found["columns"]
    row, column = number // columns * side, number % columns * side
    assert row < sheet.shape[0]
    return sheet[row : row + side, column : column + side]


def shows(found: dict[str, Any], number: int, picture: torch.Tensor) -> bool:
    """Whether a tile is this picture (C, H, W), but for what JPEG loses."""
    expected = tiles(picture[None])[0].float().mean(0).numpy()
    return bool(np.abs(tile(found, number) - expected).mean() < 12)


@pytest.fixture(scope="module")
def simco(run_of: RunOf) -> tuple[TrainedRun, dict[str, Any]]:
    """A run and its pictures."""
    run = open_trained_run(run_of("simco"))
    return run, collect_pictures(run)


@pytest.mark.parametrize("method", METHODS)
def test_every_kind_of_framework_has_its_pictures(run_of: RunOf, tmp_path: Path, method: str) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run_of(method), copy)
    before = {path.name for path in copy.iterdir()}
    take_pictures(copy, "cpu")
    assert {path.name for path in copy.iterdir()} - before == {"pictures.json"}
    found = json.loads((copy / "pictures.json").read_text())
    assert (found["step"], found["tile"]) == (4, 32)
    if method == "supervised":
        assert found["anchors"] is None
        assert found["map"]["W"] is None
    else:
        assert found["anchors"]["count"] == 32
        assert [len(found["anchors"][kind]) for kind in ("hardest", "easiest")] == [6, 6]
        W = [anchor["W"] for kind in ("hardest", "easiest") for anchor in found["anchors"][kind]]
        assert W[:6] == sorted(W[:6], reverse=True)
        assert W[6:] == sorted(W[6:])
        assert min(W[:6]) >= max(W[6:])
        assert len(found["map"]["W"]) == len(found["map"]["names"])
    assert len(found["map"]["names"]) == 359
    assert {len(found["map"][part]) for part in ("pictures", "labels", "pca", "tsne")} == {359}
    assert found["map"]["classes"] == [str(digit) for digit in range(10)]
    assert [len(row["found"]) for row in found["neighbours"]["rows"]] == [6] * 8


def test_the_numbers_of_the_anchors_are_those_of_the_formulas(
    simco: tuple[TrainedRun, dict[str, Any]],
) -> None:
    run, found = simco
    batch = next(iter(run.anchors(1)))
    q, k = (x.double().numpy() / np.linalg.norm(x.double().numpy(), axis=1, keepdims=True) for x in batch[:2])
    s = q @ k.T
    others = ~np.eye(32, dtype=bool)
    sums = (np.exp(s / 1.0) * others).sum(1)  # tau_beta
    W = sums / (np.exp(s.diagonal() / 1.0) + sums)
    p = np.exp(s / 0.1) * others
    p /= p.sum(1, keepdims=True)  # tau_alpha
    images = [run.data.views.unnormalize(view) for view in batch.views]
    place = {f"training image {i}": n for n, i in enumerate(batch.index.tolist())}
    labels = run.data.images.labels
    assert labels is not None
    expected = np.argsort(W)
    for kind, wanted in (("hardest", expected[::-1][:6]), ("easiest", expected[:6])):
        assert [place[anchor["name"]] for anchor in found["anchors"][kind]] == wanted.tolist()
        for anchor in found["anchors"][kind]:
            i = place[anchor["name"]]
            assert anchor["label"] == str(int(labels[batch.index[i]]))
            assert (anchor["s"], anchor["W"], anchor["r"]) == pytest.approx((s[i, i], W[i], W[i] / W.sum()), rel=1e-4)
            assert all(shows(found, anchor["views"][view], images[view][i]) for view in (0, 1))
            hardest = np.argsort(-np.where(others[i], s[i], -9))[:6].tolist()
            assert [place[negative["name"]] for negative in anchor["negatives"]] == hardest
            for negative, j in zip(anchor["negatives"], hardest, strict=True):
                assert (negative["s"], negative["p"]) == pytest.approx((s[i, j], p[i, j]), rel=1e-3, abs=1e-6)
                assert shows(found, negative["picture"], images[1][j])


def test_the_map_and_the_neighbours_show_the_images_that_they_name(
    simco: tuple[TrainedRun, dict[str, Any]],
) -> None:
    run, found = simco
    test = run.data.test
    assert test is not None
    assert test.labels is not None
    for place in (0, 100, 358):
        i = int(found["map"]["names"][place].removeprefix("test image "))
        assert found["map"]["labels"][place] == int(test.labels[i])
        assert shows(found, found["map"]["pictures"][place], test.pixels[i] / 255)  # pyright: ignore
    rows = found["neighbours"]["rows"]
    for image in (row["query"] for row in rows):
        i = int(image["name"].removeprefix("test image "))
        assert image["label"] == str(int(test.labels[i]))
        assert shows(found, image["picture"], test.pixels[i] / 255)  # pyright: ignore
    assert len({row["query"]["label"] for row in rows}) == 8  # different classes
    assert 0.2 < found["neighbours"]["agreement"] < 1


def test_the_weights_of_the_map_are_those_of_each_image_among_all(
    simco: tuple[TrainedRun, dict[str, Any]],
) -> None:
    run, found = simco
    test = run.data.test
    assert test is not None
    index = torch.arange(359)
    q, k = [], []
    for part in index.tensor_split(12):  # as equal as they can be, none larger than the run's batch of 32
        first, second = (run.data.views(test.pixels[part], part, 1, view) for view in (0, 1))  # pyright: ignore
        q.append(run.query(first))
        k.append(run.key(second))
    a, b = (torch.nn.functional.normalize(torch.cat(x).double(), dim=1) for x in (q, k))
    e = (a @ b.T).exp()
    negatives = e.sum(1) - e.diagonal()
    torch.testing.assert_close(torch.tensor(found["map"]["W"]).double(), negatives / e.sum(1), atol=1e-5, rtol=0)


def test_pictures_come_out_the_same_again(run_of: RunOf, simco: tuple[TrainedRun, dict[str, Any]]) -> None:
    assert collect_pictures(open_trained_run(run_of("simco"))) == simco[1]


def test_at_an_infinite_tau_beta_the_vectors_temperature_tells_the_hard_anchors(
    train_run: Callable[..., Path], tmp_path: Path
) -> None:
    path = train_run(tmp_path / "run", tau_beta=math.inf)
    take_pictures(path, "cpu")
    found = json.loads((path / "pictures.json").read_text())
    assert math.isinf(found["tau_beta"])
    anchors = found["anchors"]
    assert [a["W"] for kind in ("hardest", "easiest") for a in anchors[kind]] == pytest.approx([31 / 32] * 12)
    assert np.mean([a["s"] for a in anchors["hardest"]]) < np.mean([a["s"] for a in anchors["easiest"]])


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_set_of_few_images_without_labels_has_what_it_can_have(
    train_run: Callable[..., Path], tmp_path: Path, count: int
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (count + 1, 8, 8, 3), dtype=np.uint8)  # one is held out
    np.savez(tmp_path / "few.npz", images=pixels)
    path = train_run(tmp_path / "run", data=str(tmp_path / "few.npz"), subset=None, batch=2)
    take_pictures(path, "cpu")
    found = json.loads((path / "pictures.json").read_text())
    assert found["part"] == "training"
    assert found["map"]["labels"] == [-1] * count
    assert found["map"]["tsne"] is None
    assert len(found["map"]["W"]) == count
    assert len(found["neighbours"]["rows"]) == count
    assert [len(row["found"]) for row in found["neighbours"]["rows"]] == [count - 1] * count
    assert found["neighbours"]["agreement"] is None


def test_a_folder_of_photographs_with_broken_files_has_pictures_of_the_others(
    train_run: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "photographs"
    for number in range(24):
        (folder / f"class{number % 2}").mkdir(parents=True, exist_ok=True)
        shade = Image.new("RGB", (90 + number, 80), (10 * number, 200, 40))
        shade.save(folder / f"class{number % 2}" / f"{number:02}.jpg")
    for name in ("class0/broken.jpg", "class1/empty.png"):
        (folder / name).write_bytes(b"")
    path = train_run(tmp_path / "run", data=str(folder), subset=None, batch=8, image_size=72, method="byol")
    take_pictures(path, "cpu")
    found = json.loads((path / "pictures.json").read_text())
    assert found["tile"] == 64
    names = found["map"]["names"]
    assert not {"class0/broken.jpg", "class1/empty.png"} & set(names)
    assert len(names) == len(set(names)) >= 20
    assert [found["map"]["classes"][label] for label in found["map"]["labels"]] == [name[:6] for name in names]
    shown = [tile(found, number).mean() for number in found["map"]["pictures"]]
    assert shown == pytest.approx([0.299 * 10 * int(name[7:9]) + 0.587 * 200 + 0.114 * 40 for name in names], abs=4)


def test_what_is_no_run_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a run: it has no config.yaml"):
        take_pictures(tmp_path, "cpu")
