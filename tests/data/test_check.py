import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dualtemp.data.check import check_source
from dualtemp.data.sources.opening import open_source


def mixed_folder(root: Path) -> Path:
    """Nine readable photographs of several modes and sizes, and three files that cannot be read."""
    for folder in ("train/a", "train/b", "test/a"):
        (root / folder).mkdir(parents=True)
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 130, 3), dtype=np.uint8))
    for number in range(4):
        noise.save(root / f"train/a/{number}.jpg")
    noise.convert("L").save(root / "train/b/0.png")
    noise.convert("CMYK").save(root / "train/b/1.jpg")
    noise.convert("P").resize((50, 40)).save(root / "train/b/2.gif")
    noise.save(root / "test/a/0.webp")
    exif = Image.Exif()
    exif[0x0112] = 6
    noise.save(root / "test/a/1.jpg", exif=exif)
    (root / "train/b/3.jpg").write_bytes(b"no image")
    (root / "train/b/4.jpg").write_bytes((root / "train/a/0.jpg").read_bytes()[:1500])
    (root / "test/a/2.jpg").write_bytes(b"")
    return root


def test_a_folder_is_counted_and_every_unreadable_file_named(tmp_path: Path) -> None:
    facts = check_source(str(mixed_folder(tmp_path / "set")))
    assert facts.kept == "files"
    assert facts.split == "train/ and test/"
    train, test = facts.parts["train"], facts.parts["test"]
    assert train.classes == {"a": 4, "b": 5}
    assert train.sizes == {"130 x 90": 6, "50 x 40": 1}
    assert train.modes == {"RGB": 4, "L": 1, "CMYK": 1, "P": 1}
    assert test.sizes == {"130 x 90": 1, "90 x 130": 1}
    assert set(facts.unreadable) == {"train/b/3.jpg", "train/b/4.jpg", "test/a/2.jpg"}
    assert "truncated" in facts.unreadable["train/b/4.jpg"]


def test_small_files_in_one_tensor_still_tell_their_modes_and_the_unreadable(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for number in range(20):
        Image.new("L" if number % 2 else "RGB", (8, 9)).save(tmp_path / "set" / f"{number}.png")
    (tmp_path / "set" / "x.png").write_bytes(b"no")
    facts = check_source(str(tmp_path / "set"))
    assert facts.kept == "one tensor"
    assert sum(part.images for part in facts.parts.values()) == 20
    modes = [part.modes for part in facts.parts.values()]
    assert {mode: sum(each.get(mode, 0) for each in modes) for mode in ("L", "RGB")} == {"L": 10, "RGB": 10}
    assert list(facts.unreadable) == ["x.png"]


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_an_npz_file_is_counted(tmp_path: Path, channels: int) -> None:
    images = np.zeros((40, 5, 6, channels), np.uint8) + np.arange(40, dtype=np.uint8)[:, None, None, None]
    np.savez(tmp_path / "x.npz", images=images, labels=np.arange(40) % 2)
    facts = check_source(str(tmp_path / "x.npz"))
    assert facts.channels == channels
    assert facts.parts["train"].classes == {"0": 18, "1": 18}
    assert facts.parts["test"].classes == {"0": 2, "1": 2}
    assert facts.parts["train"].sizes == {"6 x 5": 36}
    assert not facts.unreadable


def test_the_fingerprints_are_those_of_the_opened_source() -> None:
    facts, splits = check_source("digits"), open_source("digits")
    assert splits.test is not None
    assert facts.parts["train"].fingerprint == splits.train.fingerprint
    assert facts.parts["test"].fingerprint == splits.test.fingerprint


def test_a_terminal_sees_what_goes_on_and_a_pipe_nothing(tmp_path: Path) -> None:
    for number in range(30):
        Image.new("RGB", (120 + number, 100), (number, 0, 0)).save(tmp_path / f"{number}.png")
    program = "import sys; from dualtemp.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", program, "data", str(tmp_path), "--json"]
    ours, theirs = pty.openpty()
    seen = b""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # the end of a terminal is an error on Linux
            while piece := os.read(ours, 4096):
                seen += piece
        os.close(ours)
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["parts"]["train"]["images"] == 27
    assert process.returncode == 0
    assert b"opening" in seen
    assert b"27 of 27 images" in seen
