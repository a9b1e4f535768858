"""What `--order shards` costs in accuracy and saves in time, by how the shards were packed and where they lie.

    python -m benchmarks.shard_order learn [--images 6000] [--epochs 8] [--seeds 2]     runs on CIFAR-10, held-out
    python -m benchmarks.shard_order read [--images 2000]                               an epoch: tar, Parquet, HTTP

Everything is made in a temporary folder, which is removed. `learn`: CIFAR-10's images as PNG files, one of them a pixel
wider, so that they are read from the shards and not held in memory; 60 shards or some more. `read`: JPEGs of 256 px in
20 shards, as bytes, not decoded, 16 asked for at once as a worker does; addresses without copies
(DUALTEMP_SHARD_CACHE=0).
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shards import encoded

ORDERS = ("uniform", "shards:16", "shards:4")
PACKED = {"class after class": False, "--shuffle": True}
SHARDS = {"learn": 60, "read": 20}
SERVER = """
import sys
from pathlib import Path
from tests.support.shard_server import ShardServer
print(ShardServer(Path(sys.argv[1])).address, flush=True)
sys.stdin.read()
"""


def learn(images: int, epochs: int, seeds: int) -> None:
    """Train SimCo on both packings in every order; the uniform one depends on neither."""
    import torch

    import dualtemp
    from dualtemp.data.shards.packing import pack_folder

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        size = write_cifar(root / "folder", images) // SHARDS["learn"]
        for packed, shuffle in PACKED.items():
            pack_folder(root / "folder", root / packed, shard_size=size, shuffle=shuffle)
        for packed in PACKED:
            for order in ORDERS if packed == "class after class" else ORDERS[1:]:
                for seed in range(1, seeds + 1):
                    began = time.process_time()
                    found = dualtemp.train(
                        data=str(root / packed),
                        out=root / f"{packed} {order} {seed}",
                        **{"method": "simco", "backbone": "resnet_mini", "image_size": 32, "init": "none"},
                        **{"batch": 128, "epochs": epochs, "lr": 0.12, "seed": seed, "order": order},
                        **{"validate": "held-out", "evaluate_every": epochs},
                        **{"device": "cpu", "threads": 1, "workers": 0, "quiet": True, "page": False},
                    )
                    told = " ".join(f"{m} {found[m]:.2f}" for m in ("probe_top1", "knn_top1", "loss"))
                    seconds = time.process_time() - began
                    print(f"{packed:18} {order:10} seed {seed}  {told}  {seconds:.0f} s", flush=True)


def write_cifar(folder: Path, images: int) -> int:
    """The first images of each class as PNG files in class folders; returns their size in bytes."""
    from dualtemp.data import open_source

    train, total = open_source("cifar10").train, 0
    assert train.labels is not None
    for label, word in enumerate(train.classes):
        (folder / word).mkdir(parents=True)
        for i in (train.labels == label).nonzero()[: images // 10, 0].tolist():
            picture = train.source.open(i)
            picture = picture.resize((33, 32)) if total == 0 else picture
            picture.save(folder / word / f"{i:05}.png")
            total += (folder / word / f"{i:05}.png").stat().st_size + 1024  # with its headers in the tar
    return total


def read(images: int) -> None:
    """Processor and wall milliseconds an image, in the order of an epoch."""
    import torch

    from dualtemp.data.augment.philox import permutation
    from dualtemp.data.loading.image_order import shards_at_once
    from dualtemp.data.loading.shard_order import shard_order

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        os.environ |= {"DUALTEMP_DATA": str(root / "cache"), "DUALTEMP_SHARD_CACHE": "0"}
        write_shards(root, images)
        command = [sys.executable, "-c", SERVER, str(root)]  # another process: its time is not counted
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        for place, source in sources(root, server.stdout.readline().strip()):
            shards = torch.from_numpy(source.shards())
            for order in ORDERS:
                at_once = shards_at_once(order)
                rows = permutation(0, 0, images) if at_once is None else shard_order(0, 0, shards, at_once)
                best = min(timed(source, rows.tolist()) for _ in range(3))
                cpu, wall = (1000 * each / images for each in best)
                print(f"{place:28} {order:10} {cpu:6.3f} ms of processor time, {wall:6.3f} ms of wall time", flush=True)
        server.kill()


def write_shards(root: Path, images: int) -> None:
    """JPEGs of 256 px as tar files, and as Parquet files whose pages are compressed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from dualtemp.data.shards.packing import pack_folder

    (root / "photos").mkdir()
    for number in range(images):
        (root / "photos" / f"{number:06}.jpg").write_bytes(encoded(number, 256))
    files = sorted((root / "photos").iterdir())
    pack_folder(root / "photos", root / "tar", shard_size=sum(f.stat().st_size for f in files) // SHARDS["read"])
    (root / "parquet").mkdir()
    for shard, part in enumerate(np.array_split(np.array(files, object), SHARDS["read"])):
        table = pa.table({"image": [{"bytes": f.read_bytes(), "path": f.name} for f in part]})
        pq.write_table(table, root / "parquet" / f"{shard:03}.parquet", compression="zstd")


def sources(root: Path, address: str) -> Iterator[tuple[str, Any]]:
    """The same shards on the disk and behind an address."""
    from dualtemp.data.shards.indexing import indexed
    from dualtemp.data.shards.locations import find_shards
    from dualtemp.data.shards.shard_images import ShardImages

    for kind in ("tar", "parquet"):
        local = find_shards(root / kind)
        remote = [replace(each, place=f"{address}/{kind}/{Path(each.place).name}") for each in local]
        for place, shards in ((f"{kind}, local", local), (f"{kind}, HTTP, no copies", remote)):
            index = indexed(shards)
            yield place, ShardImages(index, np.arange(len(index)), ("",) * len(index.files), place)


def timed(source: Any, rows: list[int]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    for first in range(0, len(rows), 16):
        source.read_ahead(rows[first : first + 16])
        for i in rows[first : first + 16]:
            source.content(i)
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("learn", "read"))
    parser.add_argument("--images", type=int)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    if given.part == "learn":
        learn(given.images or 6000, given.epochs, given.seeds)
    else:
        read(given.images or 2000)


if __name__ == "__main__":
    main()
