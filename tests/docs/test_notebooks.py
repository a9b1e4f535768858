"""The notebooks of docs/notebooks are valid, hold no outputs, and run, in a new process and an empty folder."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_processes import PATIENCE
from documented import DOCS

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
SECONDS = 120  # of processor time; a quiet core needs a fourth of it


def cells(path: Path, kind: str) -> list[str]:
    content: dict[str, Any] = json.loads(path.read_text())
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_is_valid_and_holds_no_outputs(path: Path) -> None:
    content = json.loads(path.read_text())
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    assert all(cell["outputs"] == [] for cell in content["cells"] if cell["cell_type"] == "code")
    assert cells(path, "markdown")[0].startswith("# ")
    for number, code in enumerate(cells(path, "code")):
        compile(code, f"{path.name}, cell {number}", "exec")
    assert f"({path.name})" in (DOCS / "notebooks" / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    program = tmp_path / "cells.py"
    program.write_text("\n\n".join(cells(path, "code")))
    (tmp_path / "here").mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DUALTEMP_DATA": str(tmp_path / "cache")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path / "here",
        env=environment,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime < SECONDS
