import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_photos import draw_photos

from dualtemp.cli import main
from dualtemp.encoder.bank import Gathered, bank_of_file, gather_rows
from dualtemp.encoder.embed import embed
from dualtemp.encoder.label_file import labels_by_name
from dualtemp.encoder.select import WAYS, select
from dualtemp.encoder.selection import select_diverse
from dualtemp.encoder.selection_simulation import Simulation, simulate
from dualtemp.errors import UserError

HOW: dict[str, Any] = {"workers": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def features(photos_run: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return embed(photos_run, data=photos, out=tmp_path_factory.mktemp("features") / "e.parquet", **HOW).path


def rows_of(features: Path) -> Gathered:
    return gather_rows(bank_of_file(features).rows)


@pytest.mark.parametrize("by", WAYS)
def test_each_way_selects_from_a_run_and_from_its_features_alike(
    photos_run: Path, photos: Path, features: Path, tmp_path: Path, by: str
) -> None:
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.*"))
    labels = tmp_path / "labels.csv"
    labels.write_text("name,label\n" + "".join(f"{name},{name.split('/')[1]}\n" for name in names[::4]))
    words = {"by": by, "labels": labels, **HOW}
    found = select(photos_run, 6, data=photos, **words)
    assert len(set(found.names)) == 6
    assert set(found.names) <= set(names) - set(names[::4])
    assert (found.among, found.labeled) == (len(names), len(names[::4]))
    assert found.scores == sorted(found.scores, reverse=True) or by == "typical"
    assert select(photos_run, 6, data=photos, embeddings=features, **words).names == found.names
    if by == "hardest":
        with pytest.raises(UserError, match="draws views"):
            select(features, 6, **words)
    else:
        assert select(features, 6, **words).names == found.names


def test_the_command_selects_what_the_function_of_features_does(
    photos_run: Path, features: Path, tmp_path: Path, capsys: Any
) -> None:
    rows = rows_of(features)
    expected = [rows.names[i] for i in select_diverse(rows.features, 5).index]
    for ending in ("csv", "json", "txt"):
        assert main(["select", str(features), "-n", "5", "--out", str(tmp_path / f"new/s.{ending}")]) == 0
    assert "5 images to label, of 34" in capsys.readouterr().out
    with open(tmp_path / "new/s.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["name"] for line in lines] == expected
    assert [line["label"] for line in lines] == [""] * 5, "to be filled in, and given back with --labels"
    assert (tmp_path / "new/s.txt").read_text().split() == expected
    told = json.loads((tmp_path / "new/s.json").read_text())
    assert [each["name"] for each in told["selected"]] == expected
    # What a person fills in goes back: those are not selected again, and count as covered.
    for line in lines:
        line["label"] = line["name"].split("/")[1]
    with open(tmp_path / "filled.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    words = ["select", str(features), "-n", "4", "--labels", str(tmp_path / "filled.csv"), "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    chosen = [rows.names.index(name) for name in expected]
    again = [rows.names[i] for i in select_diverse(rows.features, 4, chosen=chosen).index]
    assert [each["name"] for each in told["selected"]] == again
    assert told["labeled"] == 5


def test_images_of_an_unlabelled_part_are_selected_and_the_others_count_as_labeled(
    photos_run: Path, photos: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(photos, tmp_path / "some")
    draw_photos(folder / "unlabelled", 7, first=700)
    found = select(photos_run, 4, by="uncertain", data=folder, **HOW)
    assert all(name.startswith("unlabelled/") for name in found.names)
    assert (found.among, found.labeled) == (41, 34)
    filled = tmp_path / "filled.csv"
    filled.write_text("name,label\n" + "".join(f"{name},cat\n" for name in found.names[:2]))
    again = select(photos_run, 4, by="uncertain", data=folder, labels=filled, **HOW)
    assert all(name.startswith("unlabelled/") for name in again.names)
    assert (again.among, again.labeled) == (41, 36), "the next round knows the class folders too"


@pytest.mark.parametrize(("width", "scheme"), [(1100, "dark"), (380, "light")])
def test_the_pages_show_pictures_and_the_chart(
    photos_run: Path, features: Path, tmp_path: Path, open_page: Any, width: int, scheme: str
) -> None:
    words = ["select", str(photos_run), "--embeddings", str(features), "--workers", "0"]
    assert main([*words, "-n", "5", "--by", "typical", "--out", str(tmp_path / "page.html")]) == 0
    view, told = open_page(tmp_path / "page.html", width, scheme)
    assert view.locator("img").count() == 5
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    assert told == []
    out = tmp_path / "simulated.html"
    assert main([*words, "--simulate", "--seeds", "2", "--budgets", "4", "8", "--out", str(out)]) == 0
    view, told = open_page(out, width, scheme)
    assert view.locator("tbody tr").count() == 2 * len(WAYS)
    assert view.locator("svg.chart").count() == 1
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    assert told == []


def test_a_simulation_on_features_of_images_that_have_moved_leaves_out_what_draws_views(
    photos_run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = shutil.copytree(photos, tmp_path / "photos")
    features = embed(photos_run, data=images, out=tmp_path / "e.parquet", **HOW).path
    images.rename(tmp_path / "moved")
    words = ["select", str(photos_run), "--embeddings", str(features), "--simulate", "--seeds", "1", "--budgets", "4"]
    assert main(words) == 0
    told = capsys.readouterr()
    assert "hardest is left out" in told.err
    assert "diverse" in told.out


def test_a_simulation_reads_held_out_images_with_labels_of_the_selected_alone() -> None:
    rng = np.random.default_rng(0)
    centers, truth = rng.normal(size=(4, 6)), np.arange(200) % 4
    x = torch.from_numpy((centers[truth] + 0.7 * rng.normal(size=(200, 6))).astype(np.float32))
    found = simulate(x, truth, ["diverse", "typical", "uncertain"], budgets=[8, 40], seeds=3)
    assert found.random_budgets == [8, 40, 80, 160]
    assert {way: values.shape for way, values in found.accuracy.items()} == {
        "random": (3, 4), "diverse": (3, 2), "typical": (3, 2), "uncertain": (3, 2)
    }  # fmt: skip
    assert found.accuracy["random"][:, -1].mean() > 80
    shuffled = simulate(x, rng.permutation(truth), ["diverse"], budgets=[40], seeds=3)
    assert abs(shuffled.accuracy["diverse"].mean() - 25) < 15, "labels without meaning teach nothing"
    labels = truth.copy()
    labels[150:] = -1
    assert simulate(x, labels, [], budgets=[8], seeds=1).images == 150


def test_how_many_random_labels_are_needed_is_read_off_the_curve_of_random() -> None:
    curve = np.array([[50.0, 60.0, 60.0, 80.0]])
    found = Simulation([10, 20], {"random": curve, "way": np.array([[55.0, 90.0]])}, [10, 20, 40, 80], 1, 100, 2)
    assert found.needed("way", 0) == pytest.approx((10 * 20) ** 0.5)
    assert found.needed("way", 1) == float("inf")
    assert found.gain("way", 1).tolist() == [30.0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-n", "0"], "-n must be at least 1"),
        (["-n", "1000000000"], "there are 34 images to select from: give at most 34"),
        (["--by", "best"], "--by"),
        (["--by", "uncertain"], "every image has a label"),
        (["--by", "hardest"], "give the run or start"),
        (["--by", "typical", "--seed", "100000000000000000000"], "--seed must be from 0 to 2^63 - 1"),
        (["--out", "s.doc"], "ends with .csv or .html"),
        (["--labels", "none.csv"], "none.csv: cannot be read"),
        (["--labels", "bad.csv"], "no column is called"),
        (["--labels", "foreign.csv"], "no image is called 'x.png'"),
        (["--labels", "two.csv"], "x.png has two labels"),
        (["--labels", "binary.csv"], "binary.csv: not text in UTF-8"),
        (["--seeds", "3"], "--simulate"),
        (["--simulate", "-n", "3"], "--budgets"),
        (["--simulate", "--seed", "0"], "--seeds"),
        (["--simulate", "--budgets", "1000"], "budgets go from 2"),
        (["--simulate", "--labels", "one.csv"], "at least two classes, there are 1"),
        (["--simulate", "--labels", "few.csv"], "no class has five labeled images"),
        (["--embeddings", "e.csv", "-n", "3"], "leave --embeddings out"),
    ],
)
def test_mistakes_are_one_line(
    features: Path, tmp_path: Path, capsys: Any, monkeypatch: Any, words: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text("picture;kind\n")
    Path("foreign.csv").write_text("name,label\nx.png,cat\n")
    Path("two.csv").write_text("name,label\nx.png,cat\nx.png,dog\n")
    Path("binary.csv").write_bytes(b"\xff\xfe\x00")
    names = rows_of(features).names
    Path("one.csv").write_text(f"name,label\n{names[0]},cat\n")
    Path("few.csv").write_text("name,label\n" + "".join(f"{name},{i % 4}\n" for i, name in enumerate(names[:16])))
    before = sorted(path.name for path in tmp_path.iterdir())
    assert main(["select", str(features), *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.splitlines()[-1].startswith("dualtemp")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_labels_with_spaces_around_and_names_as_windows_writes_them_are_read(tmp_path: Path) -> None:
    names = ["a/x.png", "a/y.png", " z.png"]
    (tmp_path / "own.csv").write_text("name, label\na\\x.png, cat\n./a/y.png,cat \n z.png,dog\n")
    assert labels_by_name(tmp_path / "own.csv", names) == ["cat", "cat", "dog"]
    (tmp_path / "own.csv").write_text("name,label\na/x.png,cat\na\\x.png,dog\n")
    with pytest.raises(UserError, match=r"a/x\.png has two labels, cat and dog"):
        labels_by_name(tmp_path / "own.csv", names)


def test_labels_of_images_without_features_are_not_used_which_is_said(
    photos_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flat = tmp_path / "flat"
    draw_photos(flat, 8)
    (flat / "003.png").write_bytes(b"damaged")
    (flat / "h.heic").write_bytes(b"heic")
    features = embed(photos_run, data=flat, out=tmp_path / "e.parquet", **HOW).path
    labels = tmp_path / "some.csv"
    labels.write_text("name,label\n000.png,cat\n003.png,dog\nh.heic,dog\n")
    for words in (
        [str(photos_run), "--data", str(flat), "--workers", "0", "--device", "cpu"],
        [str(photos_run), "--data", str(flat), "--embeddings", str(features), "--workers", "0", "--device", "cpu"],
        [str(features)],
    ):
        assert main(["select", *words, "-n", "6", "--labels", str(labels), "--json"]) == 0
        told = capsys.readouterr()
        selected = {each["name"] for each in json.loads(told.out)["selected"]}
        assert selected == {f"00{i}.png" for i in (1, 2, 4, 5, 6, 7)}
        assert "labels of images without features are not used: 003.png and 1 more" in told.err
    labels.write_text("name,label\n000.png,cat\n009.png,dog\n")
    assert main(["select", str(features), "-n", "3", "--labels", str(labels)]) == 2
    assert "no image is called '009.png'" in capsys.readouterr().err


def test_labels_of_images_without_features_alone_are_not_called_unreadable(features: Path, tmp_path: Path) -> None:
    names = rows_of(features).names
    (tmp_path / "some.csv").write_text(f"name,label\n{names[0]},cat\n")
    with pytest.raises(UserError, match=f"only images without features have a label, such as {names[0]}"):
        labels_by_name(tmp_path / "some.csv", names[1:], left_out=names[:1])


def test_a_file_whose_labels_are_still_to_be_filled_in_is_refused(
    features: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "tolabel.csv"
    assert main(["select", str(features), "-n", "3", "--out", str(empty)]) == 0
    for words in (["-n", "3"], ["--simulate"]):
        assert main(["select", str(features), *words, "--labels", str(empty)]) == 2
        assert f"{empty}: no image has a label" in capsys.readouterr().err


def test_labels_need_no_line_of_column_names(features: Path, tmp_path: Path) -> None:
    names = rows_of(features).names[::5]
    lines = "".join(f"{name},{name.split('/')[1]}\n" for name in names)
    for ending, head in (("with", "name,label\n"), ("without", "")):
        (tmp_path / ending).write_text(head + lines)
    found, expected = (select(features, 4, labels=tmp_path / ending) for ending in ("without", "with"))
    assert found.labeled == len(names)
    assert (found.names, found.scores) == (expected.names, expected.scores)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        ("foo,bar,baz\n1,2,3\n", "expected a line"),
        ("name,label\n000.png\n", "line 2: 1 column"),
        ("name,label\n000.png,\n", "no image has a label"),
    ],
)
def test_a_mistake_in_a_file_of_labels_is_told_before_features_are_computed(
    content: str | None, said: str, photos_run: Path, photos: Path, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "some.csv").write_text(content)
    seen: list[int] = []
    with pytest.raises(UserError, match=said):
        select(
            photos_run,
            data=photos,
            labels=tmp_path / "some.csv",
            cache=False,
            progress=lambda done, total: seen.append(done),
            **HOW,
        )
    assert seen == []
