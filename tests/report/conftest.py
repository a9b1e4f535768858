"""A run to explore, and its page."""

from pathlib import Path

import pytest

import dualtemp
from dualtemp.cli import main


@pytest.fixture(scope="session")
def explored_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of MoCo on digits with a dictionary of 64 keys."""
    path = tmp_path_factory.mktemp("explorer") / "run"
    dualtemp.train(
        out=path,
        method="moco",
        dictionary_size=64,
        batch=32,
        subset=256,
        data="digits",
        backbone="resnet_mini",
        epochs=1,
        warmup_epochs=0,
        knn_images=128,
        device="cpu",
        threads=1,
        quiet=True,
    )
    return path


@pytest.fixture(scope="session")
def explored_page(explored_folder: Path) -> Path:
    """Its explorer, written by the command: 64 anchors, 192 keys."""
    assert main(["explore", str(explored_folder), "--device", "cpu"]) == 0
    return explored_folder / "explore.html"
