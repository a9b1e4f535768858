from pathlib import Path
from typing import Any

import pytest
from command_processes import Command, Commands


class Pageless(Commands):
    """Runs without a page, whose pictures take longer than a run of these tests; `with_page` makes one."""

    def __init__(self, commands: Commands) -> None:
        self.__dict__ = commands.__dict__  # the same processes

    def start(self, *words: object, **how: Any) -> Command:
        return super().start(*words, *(["--no-page"] if words[0] in ("train", "resume") else []), **how)

    def with_page(self, *words: object, **how: Any) -> Command:
        return super().start(*words, **how)


@pytest.fixture(scope="session")
def commands(commands: Commands) -> Pageless:
    return Pageless(commands)


@pytest.fixture
def run_once(commands: Commands, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Any:
    """Give the folder of a run that was never disturbed; made once for the same words."""
    made: dict[tuple[str, ...], Path] = request.config.__dict__.setdefault("undisturbed_runs", {})

    def run(*words: str) -> Path:
        if words not in made:
            path = tmp_path_factory.mktemp("undisturbed") / "run"
            ended = commands.run("train", *words, "--out", path)
            assert ended.code == 0, ended.err
            made[words] = path
        return made[words]

    return run
