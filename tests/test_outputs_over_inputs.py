"""A file that is read is never the one that is written."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dualtemp.cli import main
from dualtemp.encoder.overwriting import refuse_overwriting


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
    for number, each in enumerate(pixels):
        Image.fromarray(each).save(tmp_path / "photos" / f"{number}.png")
    np.savez(tmp_path / "photos.npz", images=pixels)
    (tmp_path / "labels.csv").write_text("file,label\n0.png,a\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("data: photos\n")
    (tmp_path / "linked.npz").symlink_to("photos.npz")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.yaml").write_text("data: photos.npz\nlabels_from: labels.csv\n")
    (tmp_path / "labeled").mkdir()
    (tmp_path / "labeled" / "0.png").write_bytes((tmp_path / "photos" / "0.png").read_bytes())
    (tmp_path / "labeled" / "labels.csv").write_text("file,label\n0.png,a\n")
    (tmp_path / "arrays").mkdir()
    for name in ("train.npz", "test.npz"):
        np.savez(tmp_path / "arrays" / name, images=pixels)
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "0.parquet").write_bytes(b"PAR1")
    (tmp_path / "parted").mkdir()
    for number in range(2):
        (tmp_path / "parted" / f"part-0000{number}-of-00002.parquet").write_bytes(b"PAR1")
    (tmp_path / "of-shards").mkdir()
    (tmp_path / "of-shards" / "config.yaml").write_text("data: parted\n")
    (tmp_path / "features.csv").write_text("name,0\n0.png,1\n")
    (tmp_path / "features.index.json").write_text('{"path": "features.csv"}')
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "embed run --data photos.npz --out photos.npz",
        "embed run --data photos.npz --out linked.npz",
        "embed run --data ./photos.npz --out photos/../photos.npz",
        "predict run --data photos --labels labels.csv --out labels.csv",
        "select run --data photos --labels labels.csv -n 1 --out labels.csv",
        "select labels.csv -n 1 --out labels.csv",
        "near-duplicates run --embeddings labels.csv --out labels.csv",
        "select run --embeddings features.csv -n 1 --out features.csv",
        "select run --data labeled -n 1 --out labeled/labels.csv",
        "near-duplicates run --index features.index --out features.csv",
        "embed own --out photos.npz",
        "embed own --data photos --out photos.npz",
        "predict own --data photos --out labels.csv",
        "embed run --data arrays --out arrays/test.npz",
        "embed run --data shards --out shards/0.parquet",
        "embed run --data shards/{0..1}.parquet --out shards/0.parquet",
        "embed of-shards --out parted",
        "embed of-shards --data photos --out parted",
        "embed run --data parted/part-*-of-00002.parquet --out parted",
        "embed run --data parted/part-00000-of-00002.parquet --out parted",
        "data photos --show --out photos/0.png",
        "data photos.npz --show --out photos.npz",
        "explore run --out run/config.yaml",
        "analyze run entropy --out run/environment.json",
        "predict run --data photos --labels labels.csv --out run/evaluation.json",
    ],
)
def test_an_output_over_an_input_is_one_line_and_nothing_changes(
    words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted(path for path in here.rglob("*") if path.is_file())
    before = [path.read_bytes() for path in files]
    assert main(words.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"overwritten|ends with", line)
    assert sorted(path for path in here.rglob("*") if path.is_file()) == files
    assert [path.read_bytes() for path in files] == before


@pytest.mark.parametrize(
    ("data", "shards"), [("arrays", []), ("parts", ["train-0.parquet", "test-0.parquet"]), ("photos", [])]
)
def test_what_no_source_reads_may_be_written_a_second_time(data: str, shards: list[str], here: Path) -> None:
    (here / data).mkdir(exist_ok=True)
    for name in shards:
        (here / data / name).write_bytes(b"PAR1")
    out = here / data / "features.parquet"
    out.write_bytes(b"PAR1")
    refuse_overwriting(out, "run", data)
