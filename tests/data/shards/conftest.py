from pathlib import Path

import pytest
from packed_shards import draw_folder, write_shards


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder for each test."""
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photographs with train/ and test/; beside it `shards` with the same images."""
    folder = draw_folder(tmp_path_factory.mktemp("sharded") / "photos")
    for part in ("train", "test"):
        write_shards(folder / part, folder.parent / "shards" / part, 5)
    return folder


@pytest.fixture
def shards(photos: Path) -> Path:
    return photos.parent / "shards"
