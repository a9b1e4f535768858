import os

# One thread per process: pytest-xdist runs one worker per core.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Triton's kernels are interpreted beside a torch without CUDA; it reads this when it is loaded, by whomever.
os.environ.setdefault("TRITON_INTERPRET", "1")

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_processes import PATIENCE, Commands
from hypothesis import HealthCheck, settings

from dualtemp.bf16_on_cpu import allow_bf16

allow_bf16()  # before torch is loaded: some hosts announce instructions that they do not allow
# No check measures time, which another program may take; examples may share the folder of a test.
allowed = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile("repeatable", deadline=None, derandomize=True, suppress_health_check=allowed)
settings.load_profile("repeatable")

OpenPage = Callable[..., tuple[Any, list[str]]]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no browser: install Debian's chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=1000 * PATIENCE)
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """open_page(path, width, scheme): the page from disk, and a list of its complaints and its calls to the network."""
    opened = []

    def show(path: Path, width: int = 1100, scheme: str = "light") -> tuple[Any, list[str]]:
        view = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        told: list[str] = []
        view.on("console", lambda message: told.append(message.text))
        view.on("pageerror", lambda error: told.append(str(error)))
        view.on(
            "request", lambda request: None if request.url.startswith(("file:", "data:")) else told.append(request.url)
        )
        view.set_default_timeout(1000 * PATIENCE)
        view.goto(path.as_uri())
        opened.append(view)
        return view, told

    yield show
    for view in opened:
        view.close()


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Commands as processes that begin at once."""
    started = Commands(tmp_path_factory.mktemp("commands"))
    yield started
    started.close()
