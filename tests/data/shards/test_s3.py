"""Shards in S3, of a real server of its interface (moto) on this machine: the bits of the folder, after a kill too."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from command_processes import PATIENCE, Commands
from sharded_runs import check_kill, seen

from dualtemp.data import open_source
from dualtemp.data.shards import remote, shard_cache

pytestmark = pytest.mark.slow
pytest.importorskip("s3fs")
pytest.importorskip("moto")
SERVER = """
from moto.server import ThreadedMotoServer
import threading
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
print(server.get_host_and_port()[1], flush=True)
threading.Event().wait()
"""


@pytest.fixture(scope="module")
def bucket(photos: Path) -> Iterator[str]:
    """The address of the shards in S3; s3fs finds the server by the variables that its users set."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert server.stdout is not None
    port = next(line.strip() for line in server.stdout if line.strip().isdigit())  # after what else it says
    endpoint = f"http://127.0.0.1:{port}"
    set_ = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "DUALTEMP_SHARD_CACHE": "0",
    }
    before = {name: os.environ.get(name) for name in set_}
    os.environ.update(set_)
    remote._opened.cache_clear()
    shard_cache.find_copy.cache_clear()
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            urllib.request.urlopen(endpoint, timeout=5).close()
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    import boto3

    client = boto3.client("s3")
    client.create_bucket(Bucket="photos")
    for path in sorted((photos.parent / "shards").rglob("*.*")):
        client.upload_file(str(path), "photos", path.relative_to(photos.parent).as_posix())
    yield "s3://photos/shards"
    server.kill()
    server.wait()
    remote._opened.cache_clear()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


def test_shards_in_s3_are_the_same_set_by_braces_as_a_folder_and_as_a_pattern(photos: Path, bucket: str) -> None:
    expected = open_source(photos)
    for word in (bucket, f"{bucket}/{{train,test}}/*.tar"):
        found = open_source(word)
        assert found.train.fingerprint == expected.train.fingerprint
        assert found.train.classes == ("cat", "dog")
        assert found.split == "shards of train and test"
    index, views = seen(expected.train, 1, 0)
    for world in (1, 2, 4):
        numbers, pixels = seen(open_source(bucket).train, world, workers=int(world == 2))
        assert numbers == index
        assert torch.equal(pixels, views)


@pytest.mark.parametrize("count", [1, 2])
def test_a_killed_run_on_s3_ends_with_the_bits_of_the_folder(
    commands: Commands, photos: Path, bucket: str, tmp_path: Path, count: int
) -> None:
    check_kill(commands, photos, bucket, tmp_path, count)
