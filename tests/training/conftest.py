from collections.abc import Iterator
from typing import Any

import pytest
from command_processes import Command, Commands


class Pageless(Commands):
    """Runs without a page, whose pictures take longer than a run of these tests; `with_page` makes one."""

    def start(self, *words: object, **how: Any) -> Command:
        return super().start(*words, *(["--no-page"] if words[0] in ("train", "resume") else []), **how)

    def with_page(self, *words: object) -> Command:
        return super().start(*words)


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pageless]:
    started = Pageless(tmp_path_factory.mktemp("commands"))
    yield started
    started.close()
