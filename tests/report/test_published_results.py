"""The published summaries and pages are what the command makes of the published cells."""

from pathlib import Path

import pytest

from dualtemp.cli import main

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"
COMMANDS = {
    "mini": "T-reverse T-tau-beta --scale mini --seeds 5",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_summary_and_page_come_from_the_cells(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = PUBLISHED / name
    written = ["--summary", str(tmp_path / "summary.md"), "--report", str(tmp_path / "page.html")]
    assert main(["paper", *COMMANDS[name].split(), "--results", str(folder / "cells"), *written]) == 0
    assert (tmp_path / "summary.md").read_text() == (folder / "summary.md").read_text()
    assert (tmp_path / "page.html").read_text() == (folder / "page.html").read_text()


def test_every_published_folder_is_compared_and_its_command_is_in_the_text() -> None:
    assert {path.name for path in PUBLISHED.iterdir() if path.is_dir()} == set(COMMANDS)
    text = " ".join((PUBLISHED / "README.md").read_text().replace("\\\n", " ").split())
    for name, words in COMMANDS.items():
        assert f"dualtemp paper {words} --results docs/results/{name}/cells" in text
