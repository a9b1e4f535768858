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


def test_the_table_of_the_readme_is_that_of_the_summary() -> None:
    readme = (PUBLISHED.parents[1] / "README.md").read_text().replace("**", "")
    summary = (PUBLISHED / "mini" / "summary.md").read_text().split("### T-reverse")[1].split("###")[0]
    rows = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in summary.splitlines() if "±" in line}
    words = [".1, .1 (one)", "1, 1 (one)", ".1, 1 (two temperatures)", "1, .1 (two, reversed)"]
    for word, simco, simmoco in zip(words, rows["SimCo"][:4], rows["SimMoCo"][:4], strict=True):
        simco, simmoco = (f"{cell.split()[0]} {cell.split()[-1]}" for cell in (simco, simmoco))
        assert f"| {word} | {simco} | {simmoco} |" in readme
