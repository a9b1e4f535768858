import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from command_processes import PATIENCE

import dualtemp
from dualtemp.commands.lookup import all_commands

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


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist, and the wheel that is built from it."""
    pytest.importorskip("build", reason="needs the dev extra")
    pytest.importorskip("hatchling", reason="needs the dev extra")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    return folder


def empty_environment(folder: Path, wheel: Path) -> Path:
    """A new environment that holds the wheel and nothing else, not even pip; returns its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=PATIENCE)
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True, timeout=PATIENCE)
    return programs


def said(*words: object) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([*map(str, words)], env=clean, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_release_runs_in_an_empty_environment_and_needs_torch_alone_for_its_losses(
    released: Path, tmp_path: Path
) -> None:
    (sdist,) = released.glob("*.tar.gz")
    (wheel,) = released.glob("*.whl")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CHANGELOG.md", "SECURITY.md", "LICENSE", "docs/index.md", "mkdocs.yml", "tests/test_wheel.py"} <= names
    programs = empty_environment(tmp_path / "env", wheel)
    assert said(programs / "dualtemp", "--version") == f"{dualtemp.__version__}\n"
    listed = said(programs / "dualtemp", "--help")
    assert all(f"\n  {command.name} " in listed for command in all_commands())
    # Torch, with what torch itself requires, is added by hand; nothing else of this package's requirements is there.
    (site,) = (tmp_path / "env").rglob("site-packages")
    waiting, seen = ["torch"], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for file in metadata.files(name) or []:
            top = file.parts[0]
            if not top.startswith(("..", "__pycache__")) and not (site / top).exists():
                (site / top).symlink_to(
                    Path(str(file.locate())).parents[len(file.parts) - 2]
                    if len(file.parts) > 1
                    else Path(str(file.locate()))
                )
        for text in metadata.requires(name) or []:
            if ";" not in text:
                waiting.append(re.split(r"[\s<>=!~\[]", text)[0])
    assert not {"numpy", "pydantic", "timm", "rich"} & {path.name for path in site.iterdir()}
    program = (
        "import torch, dualtemp; q = torch.randn(4, 8, requires_grad=True);"
        "dualtemp.DualTemperatureLoss()(q, torch.randn(4, 8)).backward(); print(q.grad.abs().sum().item() > 0)"
    )
    assert said(programs / "python", "-c", program) == "True\n"
