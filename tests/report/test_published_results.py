"""The published summary is what the command makes of the published cells."""

from pathlib import Path

import pytest

from dualtemp.cli import main

PUBLISHED = Path(__file__).parents[2] / "docs" / "results" / "mini"


def test_the_published_summary_and_page_come_from_the_published_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--scale", "mini", "--seeds", "5", "--results", str(PUBLISHED / "cells")]
    written = ["--summary", str(tmp_path / "summary.md"), "--report", str(tmp_path / "page.html")]
    assert main(["paper", "T-reverse", *words, *written]) == 0
    assert (tmp_path / "summary.md").read_text() == (PUBLISHED / "summary.md").read_text()
    assert (tmp_path / "page.html").read_text() == (PUBLISHED / "page.html").read_text()
