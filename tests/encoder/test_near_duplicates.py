import csv
import json
import os
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_photos import draw_photos, drawn_photo
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from scipy.cluster.hierarchy import fcluster, linkage

from dualtemp.cli import main
from dualtemp.encoder import near_duplicates as module
from dualtemp.encoder.complete_linkage import complete_groups
from dualtemp.encoder.embed import embed
from dualtemp.encoder.near_duplicates import near_duplicates, similar_pairs

HOW: dict[str, Any] = {"workers": 0, "device": "cpu"}


def brute_force(features: np.ndarray, threshold: float) -> dict[tuple[int, int], float]:
    x = features.astype(np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    found = {(i, j): float(x[i] @ x[j]) for i, j in combinations(range(len(x)), 2)}
    return {pair: s for pair, s in found.items() if s >= threshold}


@given(st.integers(1, 30), st.integers(0, 1000), st.sampled_from([-1.0, 0.2, 0.7, 1.0]), st.integers(1, 12))
def test_pairs_are_those_of_a_brute_force_in_float64(
    monkeypatch: Any, count: int, seed: int, threshold: float, side: int
) -> None:
    monkeypatch.setitem(module.TILE, "cpu", side)
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(12, 4)).astype(np.float32)[rng.integers(0, 12, count)]
    index, s, cut = similar_pairs(torch.from_numpy(features), threshold)
    # Cosines this near to the threshold may fall on either side of it.
    sure, possible = (brute_force(features, threshold + slack) for slack in (2e-7 if threshold < 1 else -1e-9, -2e-6))
    found = [tuple(pair) for pair in index.tolist()]
    assert set(sure) <= set(found) <= set(possible)
    assert len(set(found)) == len(found)
    np.testing.assert_allclose(s, [possible[pair] for pair in found], atol=1e-6)
    assert found == [pair for _, pair in sorted(zip((-s).tolist(), found, strict=True))]
    assert not cut


@given(st.integers(0, 100), st.integers(1, 60))
def test_of_too_many_pairs_the_most_similar_are_kept(seed: int, most: int) -> None:
    features = torch.from_numpy(np.random.default_rng(seed).normal(size=(40, 3)).astype(np.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(module.TILE, "cpu", 7)
        index, s, cut = similar_pairs(features, 0.5, most)
        everything, all_s, _ = similar_pairs(features, 0.5)
    assert len(s) == min(most, len(all_s))
    np.testing.assert_array_equal(s, all_s[:most])
    np.testing.assert_array_equal(index, everything[:most])
    assert cut == (len(all_s) > most)


@given(st.integers(2, 25), st.integers(0, 1000), st.sampled_from([0.3, 0.6, 0.9]))
def test_groups_are_those_of_scipys_complete_linkage(count: int, seed: int, threshold: float) -> None:
    points = np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)
    index, _, _ = similar_pairs(torch.from_numpy(points), threshold)
    found = complete_groups(index)
    labels = fcluster(linkage(points.astype(np.float64), "complete", "cosine"), 1 - threshold, "distance")
    expected = sorted(np.flatnonzero(labels == label).tolist() for label in np.unique(labels))
    assert [group for group in expected if len(group) > 1] == sorted(
        group for group in found if len(group) > 2 or group in expected
    )
    # Whoever scipy leaves alone though it is in a pair is shown with the one that it is most similar to.
    alone = {group[0] for group in expected if len(group) == 1} & set(index.ravel().tolist())
    nearest = {i: next(pair for pair in index.tolist() if i in pair) for i in alone}
    assert sorted(nearest.values()) == sorted(group for group in found if group not in expected)
    assert {i for group in found for i in group} == set(index.ravel().tolist())
    places = {tuple(pair): place for place, pair in enumerate(index.tolist())}
    first = [min(places[pair] for pair in combinations(group, 2)) for group in found]
    assert first == sorted(first)


def test_a_chain_of_pairs_is_not_one_group() -> None:
    angles = torch.arange(47) * 0.1  # neighbors have a cosine of .995, the next but one of .98
    index, _, _ = similar_pairs(torch.stack([angles.cos(), angles.sin()], 1), 0.99)
    assert len(index) == 46
    found = complete_groups(index)
    assert {len(group) for group in found} == {2}
    assert {i for group in found for i in group} == set(range(47))


def test_many_copies_of_one_image_are_one_group() -> None:
    index, _, _ = similar_pairs(torch.ones(300, 4), 0.99)
    assert complete_groups(index) == [list(range(300))]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Different pictures, and of some of them a copy, a re-encoded one, a smaller one and a mirrored one."""
    folder = tmp_path_factory.mktemp("copies") / "some"
    paths = draw_photos(folder, 10)
    shutil.copy(paths[0], folder / "copy-of-000.png")
    Image.open(paths[1]).save(folder / "encoded-001.jpg", quality=90)
    drawn_photo(2, 200, 160).save(folder / "large.png")
    drawn_photo(2, 200, 160).resize((150, 120), Image.Resampling.BICUBIC).save(folder / "smaller.png")
    ImageOps.mirror(Image.open(paths[3])).save(folder / "mirrored-003.png")
    return folder


def test_copies_come_first_and_exact_ones_are_told_as_such(
    photos_run: Path, copies: Path, tmp_path: Path, capsys: Any
) -> None:
    words = ["near-duplicates", str(photos_run), "--data", str(copies), "--threshold", "0.5", "--workers", "0"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["images"], told["threshold"], told["cut"]) == (15, 0.5, False)
    first = {tuple(sorted(pair["names"])): pair for pair in told["pairs"][:3]}
    exact = ("000.png", "copy-of-000.png")
    assert set(first) == {exact, ("001.png", "encoded-001.jpg"), ("large.png", "smaller.png")}
    assert first[exact]["s"] == pytest.approx(1, abs=1e-5)
    assert [pair["names"] for pair in told["pairs"] if pair["same"]] == [list(exact)]
    # The same from a file of features, and as csv.
    embed(photos_run, data=copies, out=tmp_path / "e.csv", **HOW)
    assert main([*words, "--embeddings", str(tmp_path / "e.csv"), "--out", str(tmp_path / "new" / "pairs.csv")]) == 0
    assert f"{len(told['pairs'])} pairs among 15 images" in capsys.readouterr().out
    with open(tmp_path / "new" / "pairs.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [[line["first"], line["second"]] for line in lines] == [pair["names"] for pair in told["pairs"]]
    np.testing.assert_allclose([float(line["cosine"]) for line in lines], [p["s"] for p in told["pairs"]], atol=1e-5)
    assert [line["same_content"] for line in lines].count("yes") == 1


def test_mirrored_copies_are_found_where_asked_for(photos_run: Path, copies: Path) -> None:
    def similarity(mirrored: bool) -> float:
        found = near_duplicates(photos_run, data=copies, threshold=-1, mirrored=mirrored, **HOW)
        names = {(found.names[pair.first], found.names[pair.second]): pair.s for pair in found.pairs}
        return names["003.png", "mirrored-003.png"]

    assert similarity(True) == pytest.approx(1, abs=1e-5)
    assert similarity(False) < 0.9999


def test_images_of_a_set_are_compared_by_their_pixels(digits_run: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (30, 8, 8), dtype=np.uint8)
    pixels[17] = pixels[4]
    np.savez(tmp_path / "set.npz", images=pixels)
    found = near_duplicates(digits_run, data=tmp_path / "set.npz", threshold=0.999999, **HOW)
    assert [pair[:2] for pair in found.pairs if pair.same] == [(4, 17)]
    assert found.groups == [[4, 17]]


@pytest.mark.parametrize(("width", "scheme"), [(1100, "dark"), (380, "light")])
def test_the_page_shows_the_groups(
    photos_run: Path, copies: Path, tmp_path: Path, open_page: Any, width: int, scheme: str
) -> None:
    found = near_duplicates(photos_run, data=copies, threshold=0.995, **HOW)
    words = ["near-duplicates", str(photos_run), "--data", str(copies), "--threshold", ".995", "--workers", "0"]
    assert main([*words, "--out", str(tmp_path / "page.html")]) == 0
    view, told = open_page(tmp_path / "page.html", width, scheme)
    sections = view.locator("section")
    assert sections.count() == len(found.groups) >= 1
    for number, group in enumerate(found.groups):
        text = sections.nth(number).inner_text()
        assert all(found.names[i] in text for i in group)
    assert view.get_by_text("has an exact copy here").count() == 2
    assert view.locator("img").count() == sum(map(len, found.groups))
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    assert told == []


def test_groups_come_in_the_order_of_their_most_similar_pair_on_the_page_too(
    photos_run: Path, tmp_path: Path, capsys: Any
) -> None:
    paths = draw_photos(tmp_path / "some", 6)
    for number, quality in enumerate((90, 60, 40)):  # a group of four, almost equal
        Image.open(paths[0]).save(tmp_path / "some" / f"again-{number}.jpg", quality=quality)
    shutil.copy(paths[4], tmp_path / "some" / "copy-of-004.png")  # a group of two, equal
    found = near_duplicates(photos_run, data=tmp_path / "some", **HOW)
    best = [max(pair.s for pair in found.pairs if pair.first in group) for group in found.groups]
    assert best == sorted(best, reverse=True)
    assert [found.names[i] for i in found.groups[0]] == ["004.png", "copy-of-004.png"]
    assert len(found.groups) > 1
    words = ["near-duplicates", str(photos_run), "--data", str(tmp_path / "some"), "--workers", "0"]
    assert main([*words, "--out", str(tmp_path / "page.html")]) == 0
    assert "; same content: 1" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text()
    assert page.index("copy-of-004.png") < page.index("again-0.jpg")


@pytest.mark.parametrize("ending", ["", ".parquet", ".npz", ".csv"])
def test_pairs_of_two_labels_and_of_train_and_test_are_told_as_such(
    photos_run: Path, tmp_path: Path, capsys: Any, monkeypatch: Any, ending: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    folder = tmp_path / "some"
    for part, label, first in (("train", "cat", 0), ("train", "dog", 10), ("test", "cat", 20), ("test", "dog", 30)):
        draw_photos(folder / part / label, 3, first)
    shutil.copy(folder / "train/cat/000.png", folder / "train/dog/wrong.png")
    shutil.copy(folder / "train/cat/001.png", folder / "test/cat/leaked.png")
    shutil.copy(folder / "train/dog/010.png", folder / "test/cat/both.png")
    shutil.copy(folder / "train/dog/011.png", folder / "train/dog/plain.png")
    words = ["near-duplicates", str(photos_run), "--threshold", "0.999999", "--data", str(folder), "--workers", "0"]
    if ending:
        made = embed(photos_run, data=folder, out=tmp_path / f"e{ending}", **HOW)
        words += ["--embeddings", str(made.path)]
    assert main([*words, "--out", str(tmp_path / "page.html")]) == 0
    told = capsys.readouterr().out
    assert "4 pairs among 16 images with a cosine of at least 0.999999, in 4 groups; same content: 4" in told
    assert "; two labels: 2" in told
    assert "; train and test: 2" in told
    expected = {
        ("train/cat/000.png", "train/dog/wrong.png"): "same content, two labels",
        ("test/cat/leaked.png", "train/cat/001.png"): "same content, train and test",
        ("test/cat/both.png", "train/dog/010.png"): "same content, two labels, train and test",
        ("train/dog/011.png", "train/dog/plain.png"): "same content",
    }
    lines = {tuple(sorted(line.split()[1:3])): " ".join(line.split()[3:]) for line in told.splitlines()}
    assert {pair: lines[pair] for pair in expected} == expected
    page = (tmp_path / "page.html").read_text()
    assert page.count("; two labels") == page.count("; train and test") == 2
    assert main([*words, "--json"]) == 0
    pairs = {tuple(sorted(pair["names"])): pair for pair in json.loads(capsys.readouterr().out)["pairs"]}
    for names, pair in pairs.items():
        assert [pair["parts"], pair["labels"]] == [[name.split("/")[i] for name in pair["names"]] for i in (0, 1)]
        assert names in expected
    assert main([*words, "--out", str(tmp_path / "pairs.csv")]) == 0
    with open(tmp_path / "pairs.csv", newline="") as file:
        for line in csv.DictReader(file):
            for side in ("first", "second"):
                assert line[side].split("/")[:2] == [line[f"{side}_part"], line[f"{side}_label"]]
            assert line["group"]


def test_nothing_alike_is_an_answer_too(photos_run: Path, tmp_path: Path, capsys: Any) -> None:
    draw_photos(tmp_path / "one", 1)
    words = ["near-duplicates", str(photos_run), "--data", str(tmp_path / "one"), "--workers", "0"]
    assert main([*words, "--out", str(tmp_path / "page.html")]) == 0
    assert "0 pairs among 1 image with a cosine of at least 0.99, in 0 groups" in capsys.readouterr().out
    assert "Nothing was found" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--threshold", "1.5"], "up to 1"),
        (["--threshold", "nan"], "up to 1"),
        (["--threshold", "much"], "--threshold"),
        (["--out", "pairs.txt"], "ends with .csv or .html"),
        (["--mirrored", "--embeddings", "e.csv"], "--mirrored needs the images"),
        (["--data", "empty"], "no image file"),
    ],
)
def test_mistakes_are_one_line(
    photos_run: Path, tmp_path: Path, capsys: Any, monkeypatch: Any, words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    assert main(["near-duplicates", str(photos_run), *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_class_folders_whose_names_are_no_text_are_written_as_files_of_features_have_them(
    photos_run: Path, tmp_path: Path, capsys: Any
) -> None:
    odd = os.fsdecode(b"caf\xe9")  # as an archive of another system leaves it
    draw_photos(tmp_path / "in" / odd, 2)
    draw_photos(tmp_path / "in" / "dog", 2)
    words = ["--data", str(tmp_path / "in"), "--threshold", "-1", "--workers", "0", "--device", "cpu"]
    assert main(["near-duplicates", str(photos_run), *words, "--out", str(tmp_path / "x.csv")]) == 0
    with open(tmp_path / "x.csv", encoding="utf-8", newline="") as file:
        assert "caf\\xe9" in {word for row in csv.reader(file) for word in row}
    capsys.readouterr()
