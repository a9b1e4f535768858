import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from drawn_photos import draw_photos

from dualtemp.api import train

SMALL = {
    "backbone": "resnet_mini",
    "epochs": 1,
    "device": "cpu",
    "workers": 0,
    "threads": 1,
    "quiet": True,
    "page": False,
}


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of the tests' own: what they keep is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("cache")
        patch.setenv("DUALTEMP_DATA", str(path))
        yield path


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on grey images in memory; not to be written into."""
    path = tmp_path_factory.mktemp("runs") / "digits"
    train(data="digits", out=path, batch=64, subset=128, knn_images=128, **SMALL)
    return path


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of coloured images of different sizes: two classes, train/ and test/; not to be written into."""
    root = tmp_path_factory.mktemp("images") / "photos"
    for start, (part, label, count) in enumerate(
        (("train", "cat", 12), ("train", "dog", 12), ("test", "cat", 5), ("test", "dog", 5))
    ):
        draw_photos(root / part / label, count, first=100 * start, suffix=".jpg" if label == "dog" else ".png")
    return root


@pytest.fixture(scope="session")
def photos_run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on these photographs; not to be written into."""
    path = tmp_path_factory.mktemp("runs") / "photos"
    train(data=str(photos), out=path, batch=8, image_size=24, **SMALL)
    return path


@pytest.fixture
def run_copy(photos_run: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be changed."""
    return shutil.copytree(photos_run, tmp_path / "run")
