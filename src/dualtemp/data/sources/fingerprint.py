"""Fingerprints of a set's content: the same pixels, labels and classes give the same 32 hexadecimal digits anywhere.

Nothing else enters: no path, set name, time or machine. There are two forms, told apart by the first hashed word:

    tensor:  blake2b-128 of ("pixels", shape, the uint8 bytes in N, C, H, W order, labels, classes)
    files:   blake2b-128 of ("files", for each image in name order its name, length and bytes, labels, classes)
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

CHUNK = 1 << 24


def fingerprint_pixels(pixels: Tensor, labels: Tensor | None, classes: Sequence[str]) -> str:
    """Fingerprint an in-memory set: pixels uint8 (N, C, H, W), labels int64 (N,) or None."""
    digest = blake2b(digest_size=16)
    digest.update(f"pixels {tuple(pixels.shape)}\n".encode())
    # In chunks, so that a set on a GPU or a non-contiguous one is never copied whole.
    per_chunk = max(1, CHUNK // max(1, pixels[:1].numel()))
    for part in pixels.split(per_chunk) if len(pixels) else ():
        digest.update(_bytes(part))
    return _finish(digest, labels, classes)


def fingerprint_files(
    names: Sequence[str], content: Callable[[int], bytes], labels: Tensor | None, classes: Sequence[str]
) -> str:
    """Fingerprint images that are read one by one, in the order of their names; content(i): the bytes of image i.

    An image that cannot be read (OSError) counts with its name alone.
    """
    digest = blake2b(digest_size=16)
    digest.update(b"files\n")
    for i, name in enumerate(names):
        try:
            found = content(i)
        except OSError:
            digest.update(f"{name}\0unreadable\n".encode(errors="surrogateescape"))
            continue
        digest.update(f"{name}\0{len(found)}\n".encode(errors="surrogateescape"))
        digest.update(found)
    return _finish(digest, labels, classes)


def names_fingerprint(names: Iterable[str]) -> str:
    """Fingerprint file names, in their order: this identifies a large set without reading it."""
    digest = blake2b(digest_size=16)
    for name in names:
        digest.update(name.encode(errors="surrogateescape") + b"\0")
    return digest.hexdigest()


def labels_fingerprint(labels: Tensor | None, classes: Sequence[str]) -> str:
    """Fingerprint the labels of a set and the names of its classes; if it has no labels, of the names alone."""
    return _finish(blake2b(digest_size=16), labels, classes)


def _finish(digest: blake2b, labels: Tensor | None, classes: Sequence[str]) -> str:
    if labels is None:
        digest.update(b"no labels\n")
    else:
        digest.update(f"labels {len(labels)}\n".encode())
        # Little-endian on every machine.
        digest.update(labels.to("cpu", torch.int64).numpy().astype("<i8").tobytes())
    for name in classes:
        digest.update(f"class {len(name)} {name}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _bytes(pixels: Tensor) -> memoryview:
    return np.ascontiguousarray(pixels.cpu().numpy()).data
