"""docs/licenses.md and docs/deprecations.md say what the package ships and what it still accepts."""

import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

from dualtemp.former_modules import MOVED

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def shipped() -> list[str]:
    """The files of the wheel that are no Python."""
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    names = [name.removeprefix("src/") for name in listed.splitlines()]
    return [name for name in names if not name.endswith(".py") and not name.startswith("dualtemp/studio/frontend/")]


def test_every_file_that_is_no_python_has_its_license() -> None:
    files = shipped()
    if not files:
        pytest.skip("not a copy of the repository")
    table = (DOCS / "licenses.md").read_text().partition("## What it rests on")[0]
    rows = [re.findall(r"`([^`]+)`", line.split("|")[1]) for line in table.splitlines() if line.startswith("| `")]
    patterns = [
        name if name.startswith("dualtemp/") else f"{Path(row[0]).parent}/{name}" for row in rows for name in row
    ]
    assert [file for file in files if not any(fnmatch(file, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(fnmatch(file, pattern) for file in files)] == []


def test_no_fonts_weights_or_foreign_programs_are_shipped() -> None:
    endings = {Path(name).suffix for name in shipped()}
    assert not endings & {".ttf", ".otf", ".woff", ".woff2", ".pth", ".pt", ".onnx", ".safetensors", ".so", ".wasm"}


def test_every_picture_of_the_pages_is_in_the_list() -> None:
    text = (DOCS / "licenses.md").read_text()
    pictures = {
        path.name for ending in ("png", "jpg", "jpeg", "gif", "svg", "webp") for path in DOCS.rglob(f"*.{ending}")
    }
    assert {name for name in pictures if f"`{name}`" not in text} == set()


def test_every_former_name_is_listed() -> None:
    text = (DOCS / "deprecations.md").read_text()
    for former, new in MOVED.items():
        assert f"| module | `{former}` | `{new}` |" in text
    named = re.findall(r"`([\w.\-=]+)`", text)
    for path in set((ROOT / "src" / "dualtemp").rglob("*.py")) - {ROOT / "src" / "dualtemp" / "renamed.py"}:
        source = path.read_text()
        for former, new in re.findall(r'renamed_arguments\((\w+)="(\w+)"\)', source):
            assert {f"{former}=", f"{new}="} <= set(named) or {former, new} <= set(named), (path, former)
        for former in re.findall(r'warn\("(?:\w+\.)?(\w+) is now', source):
            assert former in named, (path, former)
