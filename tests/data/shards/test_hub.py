"""Sets of the hub, from its cache: a folder in the layout that the hub's library keeps; no network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from drawn_photos import drawn_photo

pa = pytest.importorskip("pyarrow")
pytest.importorskip("huggingface_hub")

PROGRAM = """
import json, sys
from dualtemp.data import open_source
from dualtemp.errors import UserError
try:
    splits = open_source(sys.argv[1])
except UserError as error:
    print(json.dumps(str(error)))
else:
    print(json.dumps([splits.train.classes, list(splits.train.source.names), splits.split, splits.train.name]))
"""


def asked(word: str, cache: Path, own: Path) -> object:
    """What a process says that may not use a network."""
    told = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache), "DUALTEMP_DATA": str(own)}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, word], env={**os.environ, **told}, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_set_in_the_hubs_cache_is_opened_without_a_network_and_another_is_a_mistake(tmp_path: Path) -> None:
    import io

    import pyarrow.parquet as pq

    revision, repository = "a" * 40, tmp_path / "hub" / "datasets--owner--animals"
    folder = repository / "snapshots" / revision / "data"
    for each in (folder, repository / "refs", repository / "blobs"):
        each.mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    features = {"image": {"_type": "Image"}, "label": {"names": ["zebra", "ape"], "_type": "ClassLabel"}}
    for part, first in (("train", 0), ("test", 10)):
        rows = []
        for number in range(first, first + 6):
            buffer = io.BytesIO()
            drawn_photo(number, 50 + number, 40).save(buffer, "PNG")
            rows.append({"bytes": buffer.getvalue(), "path": f"{number:03}.png"})
        table = pa.table({"image": rows, "label": [number % 2 for number in range(6)]})
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        pq.write_table(table, repository / "blobs" / part)
        (folder / f"{part}-00000-of-00001.parquet").symlink_to(f"../../../blobs/{part}")
    found = asked("hf:owner/animals", tmp_path / "hub", tmp_path / "cache")
    assert found == [["zebra", "ape"], [f"train/{i:03}.png" for i in range(6)], "shards of train and test", "animals"]
    told = asked("hf:owner/none", tmp_path / "hub", tmp_path / "cache")
    assert isinstance(told, str)
    assert told.startswith("hf:owner/none: the hub cannot be reached, and the set is not in its cache")
    assert "\n" not in told
