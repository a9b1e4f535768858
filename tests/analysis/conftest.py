"""Small trained runs, one a framework, made when a test first asks for them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dualtemp.config import settings
from dualtemp.training.launch import ExecutionOptions
from dualtemp.training.start import start

SETTINGS = {"data": "digits", "backbone": "resnet_mini", "epochs": 1, "batch": 32, "subset": 128, "warmup_epochs": 0}
FAST = {"evaluate_every": 1, "knn_images": 64}
OF = {"moco": {"dictionary_size": 96}}
RunOf = Callable[[str], Path]


@pytest.fixture(scope="session")
def train_run() -> Callable[..., Path]:
    """train_run(path, **settings): the folder of a new run, on digits unless told otherwise."""
    return _trained


def _trained(path: Path, **values: Any) -> Path:
    start(
        settings({**SETTINGS, **FAST, **values}), path, ExecutionOptions(device="cpu", threads=1, quiet=True, workers=0)
    )
    return path


@pytest.fixture(scope="session")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> RunOf:
    """run_of(method): the folder of a run on digits; it must be left as it is."""
    made: dict[str, Path] = {}

    def of(method: str) -> Path:
        if method not in made:
            path = tmp_path_factory.mktemp("analysis") / method
            made[method] = _trained(path, method=method, **OF.get(method, {}))
        return made[method]

    return of
