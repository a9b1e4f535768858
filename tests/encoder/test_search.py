import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_photos import draw_photos, drawn_photo
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.neighbors import NearestNeighbors

from dualtemp.cli import main
from dualtemp.encoder.embed import embed
from dualtemp.encoder.embedding_reader import Rows
from dualtemp.encoder.search import nearest_rows, search
from dualtemp.errors import UserError

HOW: dict[str, Any] = {"workers": 0, "device": "cpu"}


@given(st.data())
def test_the_nearest_are_those_of_a_brute_force_in_float64(data: st.DataObject) -> None:
    count, k = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 45))
    piece, seed = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 1000))
    rng = np.random.default_rng(seed)
    # Few different vectors: many of the rows are equally near.
    bank = rng.normal(size=(7, 3)).astype(np.float32)[rng.integers(0, 7, count)]
    queries = rng.normal(size=(2, 3)).astype(np.float32)
    pieces = [
        Rows([str(i) for i in range(count)][start : start + piece], [None] * piece, [], bank[start : start + piece])
        for start in range(0, count, piece)
    ]
    found, among = nearest_rows(torch.from_numpy(queries), pieces, k)
    unit = [x.astype(np.float64) / np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True) for x in (queries, bank)]
    cosines = unit[0] @ unit[1].T
    assert among == count
    for row, near in zip(cosines, found, strict=True):
        order = sorted(range(count), key=lambda i: (-round(row[i], 5), i))[:k]
        assert [int(each.name) for each in near] == order
        np.testing.assert_allclose([each.s for each in near], row[order], atol=1e-6)


def test_search_agrees_with_scikit_learn_on_the_embedded_features(
    photos_run: Path, photos: Path, tmp_path: Path, capsys: Any
) -> None:
    arrays = np.load(embed(photos_run, out=tmp_path / "e.npz", **HOW).path)
    photo = photos / "test" / "dog" / "301.jpg"
    own = arrays["names"].tolist().index("test/dog/301.jpg")
    reference = NearestNeighbors(n_neighbors=6, metric="cosine").fit(arrays["features"])
    distances, places = reference.kneighbors(arrays["features"][own : own + 1])
    expected = [(arrays["names"][i], 1 - d) for i, d in zip(places[0], distances[0], strict=True) if i != own]
    sources = [[], ["--data", str(photos)], ["--embeddings", str(tmp_path / "e.npz")]]
    for source in sources:
        words = ["search", str(photos_run), str(photo), *source, "-k", "5", "--json", "--workers", "0"]
        assert main(words) == 0
        told = json.loads(capsys.readouterr().out)
        (answer,) = told["photos"]
        assert told["among"] == 34
        assert [near["name"] for near in answer["found"]] == [name for name, _ in expected]
        np.testing.assert_allclose([near["s"] for near in answer["found"]], [s for _, s in expected], atol=1e-5)
        assert all(near["label"] == near["name"].split("/")[1] for near in answer["found"])
    assert not (photos_run / "search.html").exists()


def test_a_photograph_is_not_its_own_neighbour_but_its_copy_is(photos_run: Path, tmp_path: Path) -> None:
    paths = draw_photos(tmp_path, 6)
    shutil.copy(paths[4], tmp_path / "copy.png")
    found = search(photos_run, [paths[4]], data=tmp_path, k=10, **HOW)
    assert search(photos_run, str(paths[4]), data=tmp_path, k=10, **HOW).near == found.near
    assert found.near[0][0].name == "copy.png"
    assert found.near[0][0].s == pytest.approx(1, abs=1e-5)
    assert {near.name for near in found.near[0]} == {"copy.png", *(path.name for path in paths)} - {"004.png"}


def test_links_to_the_photograph_do_not_take_the_place_of_others(photos_run: Path, tmp_path: Path) -> None:
    paths = draw_photos(tmp_path / "some", 6)
    for number in range(3):
        (tmp_path / "some" / f"link{number}.png").symlink_to(paths[4])
    embed(photos_run, data=tmp_path / "some", out=tmp_path / "e.npz", **HOW)
    for where in ({"data": tmp_path / "some"}, {"embeddings": tmp_path / "e.npz"}):
        found = search(photos_run, [paths[4]], k=5, **where, **HOW)
        assert {near.name for near in found.near[0]} == {path.name for path in paths} - {"004.png"}


def test_a_photograph_is_not_its_own_neighbour_where_its_folder_is_not_known(photos_run: Path, tmp_path: Path) -> None:
    paths = draw_photos(tmp_path / "some" / "a", 6)
    shutil.copy(paths[4], tmp_path / "some" / "a" / "copy.png")
    (tmp_path / "some" / "b").mkdir()
    shutil.copy(paths[4], tmp_path / "some" / "b" / "004.png")
    draw_photos(tmp_path / "some" / "c", 1, first=5)
    embed(photos_run, data=tmp_path / "some", out=tmp_path / "e.csv", **HOW)
    found = search(
        photos_run, [paths[4], tmp_path / "some" / "b" / "004.png"], embeddings=tmp_path / "e.csv", k=2, **HOW
    )
    assert [near.name for near in found.near[0]] == ["a/copy.png", "b/004.png"]
    assert [near.name for near in found.near[1]] == ["a/004.png", "a/copy.png"]
    other = tmp_path / "000.png"  # of the same name, but another picture
    drawn_photo(77, 40, 30).save(other)
    found = search(photos_run, [other], embeddings=tmp_path / "e.csv", k=20, **HOW)
    assert len(found.near[0]) == 9


def detailed_photo(number: int, width: int, height: int) -> Image.Image:
    """Fine detail: how a photograph is made smaller decides what is left of it."""
    rng = np.random.default_rng(number)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("run", ["photos_run", "digits_run"])  # colour, grey
@pytest.mark.parametrize("ending", [".png", ".jpg"])
def test_a_photograph_finds_a_copy_of_itself_at_1_whatever_its_size_shape_and_orientation(
    run: str, ending: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sizes = [(40, 30), (640, 480), (1201, 907), (1500, 150), (97, 1400), (333, 333)]
    bank, asked = tmp_path / "bank", tmp_path / "asked"
    bank.mkdir()
    asked.mkdir()
    for number, (width, height) in enumerate(sizes):
        orientation = Image.Exif()
        orientation[0x0112] = (1, 6, 3, 8)[number % 4]
        detailed_photo(number, width, height).save(bank / f"{number}{ending}", exif=orientation)
        shutil.copy(bank / f"{number}{ending}", asked / f"asked-{number}{ending}")
    paths = sorted(asked.iterdir())
    found = search(request.getfixturevalue(run), paths, data=bank, k=1, **HOW)
    assert [near[0].name for near in found.near] == [path.name.removeprefix("asked-") for path in paths]
    np.testing.assert_allclose([near[0].s for near in found.near], 1, atol=2e-6)


@pytest.mark.parametrize("run", ["photos_run", "digits_run"])
def test_a_photograph_finds_its_pixels_in_an_npz_file_at_1(
    run: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shown = [detailed_photo(number, 101, 77) for number in range(5)]
    np.savez(tmp_path / "set.npz", images=np.stack([np.asarray(each) for each in shown]))
    shown[3].save(tmp_path / "asked.png")
    embed(request.getfixturevalue(run), data=tmp_path / "set.npz", out=tmp_path / "e.npz", **HOW)
    for where in ({"data": tmp_path / "set.npz"}, {"embeddings": tmp_path / "e.npz"}):
        found = search(request.getfixturevalue(run), [tmp_path / "asked.png"], k=1, **where, **HOW)
        assert [near.name for near in found.near[0]] == ["3"]
        assert found.near[0][0].s == pytest.approx(1, abs=2e-6)


def test_broken_files_are_passed_over_and_told(photos_run: Path, tmp_path: Path, capsys: Any) -> None:
    paths = draw_photos(tmp_path / "some", 4)
    paths[1].write_bytes(b"broken")
    out = tmp_path / "new" / "page.html"
    words = ["search", str(photos_run), str(paths[0]), "--data", str(tmp_path / "some"), "--workers", "0"]
    assert main([*words, "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "002.png" in told
    assert "1 file could not be read" in told
    assert "001.png: not an image" in told
    assert out.exists()


@pytest.fixture(scope="module")
def page(photos_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    draw_photos(folder / "some", 5)
    drawn_photo(900, 30, 30).save(folder / "some" / "<b>&amp;.png")
    drawn_photo(901, 300, 200).save(folder / "asked.jpg")
    words = ["search", str(photos_run), str(folder / "asked.jpg"), str(folder / "some" / "000.png")]
    assert main([*words, "--data", str(folder / "some"), "--out", str(folder / "page.html"), "--workers", "0"]) == 0
    return folder / "page.html"


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (380, "dark")])
def test_the_page_shows_the_photographs_and_what_was_found(
    page: Path, photos_run: Path, open_page: Any, width: int, scheme: str
) -> None:
    view, told = open_page(page, width, scheme)
    expected = search(photos_run, [page.parent / "asked.jpg"], data=page.parent / "some", **HOW).near[0]
    sections = view.locator("section")
    assert sections.count() == 2
    cards = sections.nth(0).locator(".card")
    assert cards.count() == 1 + len(expected) == 7
    assert "this photograph" in cards.nth(0).inner_text()
    for number, near in enumerate(expected, 1):
        text = cards.nth(number).inner_text()
        assert near.name in text  # also the one that looks like HTML
        assert f"{near.s:.4f}" in text
    loaded = "images => images.every(image => image.complete && image.naturalWidth > 0)"
    assert view.locator("img").evaluate_all(loaded)
    assert view.locator("img").count() == 7 + 6
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    assert told == []


def test_without_its_images_a_file_of_features_still_answers(
    photos_run: Path, photos: Path, tmp_path: Path, open_page: Any
) -> None:
    folder = tmp_path / "some"
    draw_photos(folder, 4)
    embed(photos_run, data=folder, out=tmp_path / "e.parquet", **HOW)
    folder.rename(tmp_path / "elsewhere")
    photo, out = photos / "test" / "dog" / "300.jpg", tmp_path / "page.html"
    words = ["search", str(photos_run), str(photo), "--embeddings", str(tmp_path / "e.parquet"), "--out", str(out)]
    assert main(words) == 0
    view, _ = open_page(out)
    assert view.locator(".none").count() == 4
    assert main([*words, "--data", str(tmp_path / "elsewhere")]) == 0
    view, _ = open_page(out)
    assert view.locator("img").count() == 5


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["no.jpg"], "no such file"),
        (["broken.jpg"], "not an image"),
        (["000.png", "-k", "0"], "-k must be at least 1"),
        (["000.png", "--embeddings", "no.npz"], "no such file"),
        (["000.png", "--embeddings", "broken.jpg"], "features go into"),
        (["000.png", "--embeddings", "other.npz"], "another encoder"),
        (["000.png", "--embeddings", "other.csv"], "features an image"),
        (["000.png", "--out", "page.pdf"], "ends with .html"),
        ([], "PHOTO"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    photos_run: Path, digits_run: Path, tmp_path: Path, capsys: Any, monkeypatch: Any, words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    draw_photos(tmp_path, 1)
    Path("broken.jpg").write_bytes(b"broken")
    embed(digits_run, out="other.npz", part="test", **HOW)
    Path("other.csv").write_text("name,f0,f1\na,1,2\n")
    before = sorted(tmp_path.rglob("*"))
    assert main(["search", str(photos_run), *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_search_without_a_photo_is_one_line(photos_run: Path) -> None:
    with pytest.raises(UserError, match="no photo to search with"):
        search(photos_run, [], device="cpu", workers=0)
