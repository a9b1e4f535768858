import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from dualtemp.data.images import ImageSet
from dualtemp.data.sources.digits import open_digits
from dualtemp.data.sources.fingerprint import CHUNK
from dualtemp.data.sources.folder import open_folder


def tensor_set(**changes: object) -> ImageSet:
    pixels = torch.arange(2 * 3 * 4 * 5, dtype=torch.int64).to(torch.uint8).view(2, 3, 4, 5)
    return replace(ImageSet("x", pixels, torch.tensor([0, 1]), ("a", "b")), **changes)  # type: ignore[arg-type]


def photographs(root: Path, order: list[str]) -> Path:
    for name in order:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (120, 100), (len(name), 1, 2)).save(root / name)
    return root


def test_it_is_the_documented_hash_of_the_content() -> None:
    images = tensor_set()
    assert isinstance(images.pixels, torch.Tensor)
    content = b"pixels (2, 3, 4, 5)\n" + bytes(images.pixels.flatten().tolist()) + b"labels 2\n"
    content += (0).to_bytes(8, "little") + (1).to_bytes(8, "little") + b"class 1 a\nclass 1 b\n"
    assert images.fingerprint == hashlib.blake2b(content, digest_size=16).hexdigest()


def test_a_set_larger_than_one_chunk_hashes_like_one_stretch_of_bytes() -> None:
    pixels = torch.randint(0, 256, (CHUNK // 1000 + 7, 1, 50, 40), dtype=torch.uint8)
    content = f"pixels {tuple(pixels.shape)}\n".encode() + pixels.numpy().tobytes() + b"no labels\n"
    expected = hashlib.blake2b(content, digest_size=16).hexdigest()
    assert ImageSet("x", pixels, channels=1).fingerprint == expected


def test_name_and_memory_layout_do_not_count() -> None:
    images = tensor_set()
    assert isinstance(images.pixels, torch.Tensor)
    strided = images.pixels.to(memory_format=torch.channels_last)
    assert images.fingerprint == replace(images, name="y", pixels=strided).fingerprint


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": torch.tensor([1, 0])},
        {"labels": None},
        {"classes": ("a", "c")},
        {"classes": ("a", "b", "c")},
        {"pixels": torch.zeros(2, 3, 4, 5, dtype=torch.uint8)},
        {"pixels": torch.arange(120).to(torch.uint8).view(2, 3, 5, 4)},
    ],
)
def test_any_change_of_the_content_counts(changes: dict[str, object]) -> None:
    assert tensor_set(**changes).fingerprint != tensor_set().fingerprint


def test_one_changed_pixel_counts() -> None:
    images = open_digits().train
    assert isinstance(images.pixels, torch.Tensor)
    other = images.pixels.clone()
    other[700, 0, 3, 3] ^= 1
    assert replace(images, pixels=other).fingerprint != images.fingerprint


def test_files_hash_as_documented(tmp_path: Path) -> None:
    images = open_folder(photographs(tmp_path, ["b/é.jpg"])).train
    content = (tmp_path / "b" / "é.jpg").read_bytes()
    expected = b"files\n" + "b/é.jpg\0".encode() + f"{len(content)}\n".encode() + content
    expected += b"labels 1\n" + bytes(8) + b"class 1 b\n"
    assert images.fingerprint == hashlib.blake2b(expected, digest_size=16).hexdigest()


def test_files_count_by_name_and_bytes_and_not_by_place_or_order_of_discovery(tmp_path: Path) -> None:
    names = [f"{label}/{number}.jpg" for label in ("a", "b") for number in range(12)]
    first = open_folder(photographs(tmp_path / "one", names))
    second = open_folder(photographs(tmp_path / "elsewhere" / "two", names[::-1]))
    assert not first.train.in_memory
    assert first.train.fingerprint == second.train.fingerprint
    path = tmp_path / "one" / first.train.pixels.names[3]  # type: ignore[union-attr]
    content = bytearray(path.read_bytes())
    content[-3] ^= 1  # as long as before
    path.write_bytes(content)
    assert open_folder(tmp_path / "one").train.fingerprint != second.train.fingerprint
    path = tmp_path / "elsewhere" / "two" / first.train.pixels.names[3]  # type: ignore[union-attr]
    path.rename(path.with_name("renamed.jpg"))
    assert open_folder(tmp_path / "elsewhere" / "two").train.fingerprint != first.train.fingerprint
