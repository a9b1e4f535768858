"""Pictures of gray images of 12 bits, and of stacks, on pages: people see what the encoder sees."""

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from command_processes import Commands
from drawn_stacks import draw_stacks
from drawn_xrays import drawn_xray, write_gray
from PIL import Image

from dualtemp.data import open_source
from dualtemp.encoder.embedding_reader import EmbeddingFile
from dualtemp.encoder.pictures_by_name import thumbnail_of_file

COUNT = 20
WORDS = ("--backbone", "resnet_mini", "--image-size", "32", "--batch", "8", "--epochs", "1", "--workers", "0")


def pictures(page: Path) -> list[np.ndarray]:
    found = re.findall(r"data:image/(?:png|jpeg);base64,([A-Za-z0-9+/=]+)", page.read_text())
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(each))).convert("L")).astype(float) for each in found]


@pytest.mark.slow
@pytest.mark.parametrize("side", [40, 120], ids=["in memory", "in files"])
def test_pages_of_features_show_images_by_the_levels_of_their_encoder(
    commands: Commands, tmp_path: Path, side: int
) -> None:
    for n in range(COUNT):
        write_gray(tmp_path / "xrays" / f"{n:02}.png", drawn_xray(n, side))
    run, features = tmp_path / "run", tmp_path / "features"
    photo = tmp_path / "xrays" / "00.png"
    for words in (
        ("train", "--data", tmp_path / "xrays", *WORDS, "--levels", "measured", "--init", "none", "--out", run),
        ("embed", run, "--out", features, "--parts", 2, "--workers", 0),
        ("index", features),
        ("search", run, photo, "-k", COUNT, "--out", tmp_path / "computed.html"),
        ("search", run, photo, "-k", COUNT, "--embeddings", features, "--out", tmp_path / "kept.html"),
        ("search", run, photo, "-k", COUNT, "--index", f"{features}.index", "--out", tmp_path / "indexed.html"),
        ("near-duplicates", run, "--embeddings", features, "--threshold", "-1", "--out", tmp_path / "pairs.html"),
        ("near-duplicates", run, "--index", f"{features}.index", "--threshold", "-1", "--out", tmp_path / "some.html"),
        ("select", features, "-n", COUNT, "--out", tmp_path / "select.html"),
    ):
        ended = commands.run(*words)
        assert ended.code == 0, (words, ended.err)
    again = commands.run("embed", run, "--out", features, "--parts", 2, "--workers", 0)
    assert f"{COUNT} of {COUNT} rows were computed before" in again.err
    levels = EmbeddingFile(features).levels
    assert levels is not None
    ((low, high),) = levels
    assert 0 < low < high < 4096
    expected = [((drawn_xray(n, side) - low) / (high - low) * 255).clip(0, 255).mean() for n in range(COUNT)]
    for name in ("computed", "kept", "indexed", "pairs", "some", "select"):
        shown = sorted(each.mean() for each in pictures(tmp_path / f"{name}.html"))
        assert len(shown) == COUNT, name  # the photograph that is asked for is not its own neighbor
        assert shown == pytest.approx(sorted(expected), abs=2), name


def test_a_stack_that_is_asked_for_has_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("tifffile")
    draw_stacks(tmp_path, 10)
    source = open_source(tmp_path).train.source
    path = source.path(0)
    assert path is not None
    assert thumbnail_of_file(path) is None
    shown = thumbnail_of_file(path, source.levels)
    assert shown is not None
    decoded = Image.open(io.BytesIO(base64.b64decode(shown.partition(",")[2])))
    assert decoded.mode == "RGB"
    assert np.abs(np.asarray(decoded).astype(float) - np.asarray(source.picture(0, 160))).mean() < 8
