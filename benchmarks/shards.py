"""Shards against the folder and against `webdataset`, and what a million images cost.

    python -m benchmarks.shards speed [--images 1000] [--rounds 5]      read and decode: processor time an image, ratios
    python -m benchmarks.shards million [--images 1000000]              index, open again: seconds and memory
    python -m benchmarks.shards folder [--images 100000]                a folder of files: list, hold out, open
    python -m benchmarks.shards order [--images 10000]                  classes in a batch by packing and `--order`

Everything is made in a temporary folder, which is removed. Those of `speed` take turns; the best round counts.
"""

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

SHARD = 10_000  # images of a shard of `million`


def drawn(number: int, side: int) -> Image.Image:
    coarse = np.random.default_rng(number).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)


def encoded(number: int, side: int, form: str = "JPEG") -> bytes:
    buffer = io.BytesIO()
    drawn(number, side).save(buffer, form, quality=85)
    return buffer.getvalue()


def speed(images: int, rounds: int) -> None:
    import torch

    from dualtemp.data.images import FileImages
    from dualtemp.data.shards.indexing import indexed
    from dualtemp.data.shards.locations import find_shards
    from dualtemp.data.shards.packing import pack_folder
    from dualtemp.data.shards.shard_images import ShardImages
    from dualtemp.data.sources.folder import find_images

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        os.environ["DUALTEMP_DATA"] = str(root / "cache")
        for number in range(images):
            at = root / "photos" / f"c{number % 10}"
            at.mkdir(parents=True, exist_ok=True)
            (at / f"{number:06}.jpg").write_bytes(encoded(number, 256))
        pack_folder(root / "photos", root / "tars", shard_size=4_000_000)
        files = FileImages(root / "photos", tuple(find_images(root / "photos")))
        index = indexed(find_shards(root / "tars"))
        tars = ShardImages(index, np.arange(len(index)), ("",) * len(index.files), "tars")
        contestants: dict[str, Callable[[int], int]] = {
            "folder": lambda round_: by_number(files, round_),
            "tar shards": lambda round_: by_number(tars, round_),
        }
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            print("pyarrow is not installed: no Parquet")
        else:
            rows = [{"bytes": files.content(i), "path": files.names[i]} for i in range(len(files))]
            pq.write_table(pa.table({"image": rows}), root / "x.parquet", row_group_size=100)
            found = indexed(find_shards(root / "x.parquet"))
            parquet = ShardImages(found, np.arange(len(found)), ("",), "parquet")
            contestants["Parquet (snappy)"] = lambda round_: by_number(parquet, round_)
        try:
            import webdataset as wds
        except ImportError:
            print("webdataset is not installed: pip install 'dualtemp[peers]'")
        else:
            urls = sorted(map(str, (root / "tars").glob("*.tar")))

            def streamed(round_: int) -> int:
                source = wds.WebDataset(urls, shardshuffle=len(urls), seed=round_, empty_check=False)  # pyright: ignore
                source = source.shuffle(1000).decode("pil").to_tuple("jpg")
                return sum(image.size[0] > 0 for (image,) in source)

            contestants["webdataset"] = streamed
        seconds: dict[str, list[float]] = {each: [] for each in contestants}
        for round_ in range(rounds):
            for each, run in contestants.items():
                began = time.process_time()
                assert run(round_) == images, each
                seconds[each].append(time.process_time() - began)
    best = {each: min(found) / images * 1e6 for each, found in seconds.items()}
    print(f"{images} JPEGs of 256 px, read and decoded in random order, one thread; best of {rounds} rounds")
    for each, found in best.items():
        print(
            f"  {each:18}{found:8.0f} us of processor time an image; {best['folder'] / found:.2f} x the folder's speed"
        )


def by_number(source: object, seed: int) -> int:
    """Open every image once, in a random order."""
    order = np.random.default_rng(seed).permutation(len(source))  # pyright: ignore
    return sum(source.open(int(i)).size[0] > 0 for i in order)  # pyright: ignore


def million(images: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        began = time.process_time()
        write_small(root / "shards", images)
        size = sum(path.stat().st_size for path in (root / "shards").iterdir())
        print(f"{images:,} images of 32 px with .cls in {-(-images // SHARD)} shards, {size / 1e9:.1f} GB", end="; ")
        print(f"made in {time.process_time() - began:.0f} s of processor time", flush=True)
        for what in ("index", "open again"):
            in_child(root / "shards", root / "cache", what)
        (kept,) = (root / "cache" / "shards").glob("*.npz")
        print(
            f"  the index file: {kept.stat().st_size / 1e6:.1f} MB, {kept.stat().st_size / images:.0f} bytes an image"
        )


def write_small(out: Path, images: int) -> None:
    """Tars as `tarfile` would write them, quicker: every image is another one, by the bytes after its end."""
    out.mkdir()
    some = [encoded(number, 32) for number in range(64)]
    for first in range(0, images, SHARD):
        with open(out / f"{first // SHARD:06}.tar", "wb", buffering=1 << 22) as file:
            for number in range(first, min(images, first + SHARD)):
                content = some[number % 64] + number.to_bytes(4, "big")
                for ending, body in ((".jpg", content), (".cls", str(number % 1000).encode())):
                    file.write(header(f"{number:08}{ending}", len(body)))
                    file.write(body + b"\0" * (-len(body) % 512))
            file.write(b"\0" * 1024)


def header(name: str, size: int) -> bytes:
    made = bytearray(512)
    made[: len(name)] = name.encode()
    made[100:107], made[124:135], made[156:157], made[257:265] = (
        b"0000644",
        f"{size:011o}".encode(),
        b"0",
        b"ustar\x0000",
    )
    made[148:156] = b" " * 8
    made[148:156] = f"{sum(made):06o}\0 ".encode()
    return bytes(made)


def folder(images: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        some = [encoded(number, 32) for number in range(64)]
        for number in range(images):
            at = root / "photos" / f"c{number % 100:02}"
            if number < 100:
                at.mkdir(parents=True)
            (at / f"{number:08}.jpg").write_bytes(some[number % 64] + number.to_bytes(4, "big"))
        print(f"{images:,} files of 32 px in 100 class folders", flush=True)
        in_child(root / "photos", root / "cache", "list, hold out, open")


def order(images: int) -> None:
    """How many classes a batch of 256 has, and the share of its largest, over an epoch; 100 shards of ten classes."""
    import torch

    from dualtemp.data.augment.philox import permutation
    from dualtemp.data.loading.shard_order import shard_order
    from dualtemp.data.sources.folder import name_keys

    classes = torch.arange(images) * 10 // images
    by_hash = np.argsort(name_keys(f"c{int(c)}/{i:06}" for i, c in enumerate(classes)), kind="stable")
    packs = {"class after class": classes, "--shuffle": classes[torch.from_numpy(by_hash)]}
    shards = torch.arange(images) * 100 // images
    print(f"{images:,} images of ten classes in 100 shards, batches of 256")
    for at_once in (None, 16, 4):
        drawn = permutation(0, 0, images) if at_once is None else shard_order(0, 0, shards, at_once)
        for pack, labels in packs.items():
            counts = [batch.bincount(minlength=10) for batch in labels[drawn].split(256) if len(batch) == 256]
            several = np.mean([int((count > 0).sum()) for count in counts])
            largest = np.mean([int(count.max()) / 256 for count in counts])
            told = "uniform" if at_once is None else f"shards:{at_once}"
            print(f"  --order {told:10} packed {pack:18} {several:5.1f} classes, largest {100 * largest:3.0f} %")


def in_child(data: Path, cache: Path, told: str) -> None:
    """Measure in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.shards", "measure", "--data", str(data)]
    ended = subprocess.run(
        words, env={**os.environ, "DUALTEMP_DATA": str(cache)}, capture_output=True, text=True, check=True
    )
    found = json.loads(ended.stdout.splitlines()[-1])
    for name, seconds in found["stages"].items():
        print(f"    {name:20}{seconds:8.1f} s")
    print(
        f"  {told:22}{found['seconds']:8.1f} s of processor time, {found['megabytes']:6.0f} MB more memory at most",
        flush=True,
    )


def measure(data: str) -> None:
    """Open a source, and say what the stages of a folder's opening take: each is watched where it is called."""
    from dualtemp.data import open_source
    from dualtemp.data.sources import folder as opening

    stages: dict[str, float] = {}

    def watched(told: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*words: object, **named: object) -> object:
            began = time.process_time()
            try:
                return function(*words, **named)
            finally:
                stages[told] = stages.get(told, 0.0) + time.process_time() - began

        return call

    told = {"_find": "list", "copies": "look for copies", "name_keys": "hash names", "held_out": "split"}
    for name, words in told.items():
        setattr(opening, name, watched(words, getattr(opening, name)))
    before, began = peak(), time.process_time()
    found = len(open_source(data).pretraining)
    seconds = time.process_time() - began
    print(json.dumps({"seconds": seconds, "megabytes": peak() - before, "images": found, "stages": stages}))


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("speed", "million", "folder", "order", "measure"))
    parser.add_argument("--images", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part == "speed":
        speed(given.images or 1000, given.rounds)
    elif given.part == "measure":
        measure(given.data)
    else:
        part, usual = {"million": (million, 10**6), "folder": (folder, 10**5), "order": (order, 10**4)}[given.part]
        part(given.images or usual)


if __name__ == "__main__":
    main()
