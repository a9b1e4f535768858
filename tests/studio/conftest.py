"""Studios to ask: of drawn photographs with made features, and of a trained run."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from drawn_photos import draw_photos
from open_pages import open_studio  # noqa: F401  a fixture
from served_studio import HTML, ServedStudio, serve, write_embeddings
from trained_encoders import own_cache, photos, photos_run  # noqa: F401  fixtures

CLASSES = ("blue", "green", "red")


@pytest.fixture(scope="session")
def drawn_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty photographs in a flat folder, one with HTML for a name, two the same; not to be written into."""
    root = tmp_path_factory.mktemp("studio") / "pictures"
    paths = draw_photos(root, 59)
    paths[0].rename(root / HTML)
    shutil.copy(paths[5], root / "copy.png")
    return root


@pytest.fixture(scope="session")
def embeddings(drawn_images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their features, in three groups; the two same photographs have the same ones."""
    path = tmp_path_factory.mktemp("features") / "pictures.npz"
    names = sorted(each.name for each in drawn_images.iterdir())
    labels = [number % 3 for number in range(len(names))]
    write_embeddings(path, drawn_images, names, labels, CLASSES)
    return path


@pytest.fixture
def studio(embeddings: Path, tmp_path: Path) -> Iterator[ServedStudio]:
    """A studio of these features, of its own."""
    with serve(embeddings, tmp_path) as served:
        yield served


@pytest.fixture(scope="module")
def shared_studio(embeddings: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedStudio]:
    """The same for all tests of a file."""
    with serve(embeddings, tmp_path_factory.mktemp("shared")) as served:
        yield served
