"""A third kind of source, from a plugin: what goes through every command gives what the same files in a folder give."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_processes import Commands, together
from drawn_photos import draw_photos
from run_contents import different, everything

from dualtemp.data import open_source
from dualtemp.errors import UserError
from dualtemp.plugins import load_plugin

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "zip_source.py"
PLUGIN = ("--plugin", EXAMPLE)
TINY = ("--backbone", "resnet_mini", "--image-size", "16", "--batch", "8", "--workers", "1", "--no-page")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photographs; beside it a zip file of the same."""
    folder = tmp_path_factory.mktemp("sources") / "photos"
    for number, place in enumerate(("train/cat", "train/dog", "test/cat", "test/dog")):
        draw_photos(folder / place, 12 if "train" in place else 4, 20 * number)
    (folder / "train/cat/003.png").write_bytes(b"broken")
    with zipfile.ZipFile(folder.with_suffix(".zip"), "w") as archive:
        for path in sorted(folder.rglob("*.png")):
            archive.write(path, path.relative_to(folder).as_posix())
    return folder


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 45


def test_a_zip_file_is_the_same_set_as_its_folder(photos: Path) -> None:
    load_plugin(EXAMPLE)
    files, zipped = open_source(photos), open_source(photos.with_suffix(".zip"))
    assert zipped.train.fingerprint == files.train.fingerprint
    assert zipped.train.identity() == files.train.identity()
    assert zipped.train.take([3, 1]).fingerprint == files.train.take([3, 1]).fingerprint
    for i in (0, 5):
        assert zipped.train.source.header(i) == files.train.source.header(i)
        for channels, enough in ((1, None), (3, 20)):
            images = [each.train.source.convert(channels, enough).open(i) for each in (files, zipped)]
            assert images[0] == images[1]
    assert zipped.train.source.stamp(0) != zipped.train.source.stamp(1)


@pytest.mark.slow
def test_a_zip_file_goes_through_every_command_as_its_folder_does(commands: Commands, photos: Path) -> None:
    made: dict[str, tuple[Any, ...]] = {}
    for name, data in (("files", photos), ("zip", photos.with_suffix(".zip"))):
        run, two = photos.parent / f"run-{name}", photos.parent / f"two-{name}"
        ended = commands.run("train", *PLUGIN, "--data", data, *TINY, "--epochs", "1", "--out", run)
        assert ended.code == 0, ended.err
        assert commands.run("resume", run, "--epochs", "2", "--no-page", *PLUGIN).code == 0
        started = together(commands, "train", *PLUGIN, "--data", data, *TINY, "--epochs", "1", "--out", two)
        assert [each.wait().code for each in started] == [0, 0]
        out = photos.parent / f"{name}.npz"
        assert commands.run("embed", run, "--out", out, "--workers", "0", *PLUGIN).code == 0
        with np.load(out) as arrays:
            order = arrays["names"].argsort()  # a folder is listed by names, other sources part by part
            embedded = arrays["names"][order].tolist(), arrays["features"][order]
        ended = commands.run("evaluate", run, "--only", "knn", "--json", "--workers", "0", *PLUGIN)
        assert ended.code == 0, ended.err
        measured = [{**each, "seconds": 0} for each in json.loads(ended.out)["measured"]]
        made[name] = everything(run), everything(two), embedded, measured
    for one, other in zip(made["files"][:2], made["zip"][:2], strict=True):
        assert different(one, other) == [".settings.data"]
    (names, features), (zipped_names, zipped) = made["files"][2], made["zip"][2]
    assert zipped_names == names
    assert len(names) == 31, "all but the broken one"
    np.testing.assert_allclose(zipped, features, rtol=1e-5, atol=1e-6)
    assert made["zip"][3] == made["files"][3]


def test_no_image_of_a_set_in_memory_is_a_set_of_none() -> None:
    digits = open_source("digits").train
    assert digits.take([]).size == digits.size
    assert len(digits.take([])) == len(digits.take(np.zeros(0, np.int64))) == 0


def test_an_empty_name_is_refused_and_not_taken_for_this_folder() -> None:
    with pytest.raises(UserError, match="an empty name"):
        open_source("")
