import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from command_processes import PATIENCE

import dualtemp

ROOT = Path(__file__).parents[1]


def test_the_wheel_holds_all_that_the_package_needs(tmp_path: Path) -> None:
    pytest.importorskip("build", reason="needs the dev extra")
    pytest.importorskip("hatchling", reason="needs the dev extra")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"dualtemp-{dualtemp.__version__}-")
    held = set(zipfile.ZipFile(wheel).namelist())
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    wanted = {line.removeprefix("src/") for line in tracked.splitlines()}
    assert {"dualtemp/py.typed", "dualtemp/data/sources/digits.npz", "dualtemp/cli.py"} <= held
    sources = {name for name in wanted if name.startswith("dualtemp/studio/frontend/")}  # of studio/static/studio.js
    assert wanted - sources <= held
    assert "dualtemp/studio/static/studio.js" in held
    assert any(name.endswith("licenses/LICENSE") for name in held)
