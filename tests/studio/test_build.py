"""The page's built file is what its sources give, and holds nothing but them."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from command_processes import PATIENCE

import dualtemp.studio

STUDIO = Path(dualtemp.studio.__file__).parent
FRONTEND = STUDIO / "frontend"


@pytest.mark.slow
def test_npm_builds_the_same_bytes(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    here = tmp_path / "frontend"
    shutil.copytree(FRONTEND, here, ignore=shutil.ignore_patterns("node_modules"))
    installed = subprocess.run(
        [npm, "ci", "--no-audit", "--no-fund"], cwd=here, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    if installed.returncode and re.search("ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|E40", installed.stderr):
        pytest.skip("the packages of the build cannot be downloaded")
    assert installed.returncode == 0, installed.stderr
    built = tmp_path / "studio.js"
    subprocess.run(["node", "build.mjs", str(built)], cwd=here, check=True, timeout=PATIENCE)
    assert built.read_bytes() == (STUDIO / "static" / "studio.js").read_bytes(), "run npm run build, and commit it"
    subprocess.run([npm, "run", "check"], cwd=here, check=True, timeout=PATIENCE, env={**os.environ, "CI": "1"})


def test_the_lock_names_versions_and_hashes_and_no_host() -> None:
    text = (FRONTEND / "package-lock.json").read_text()
    assert "http" not in text
    packages = {name: about for name, about in json.loads(text)["packages"].items() if name}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", each["version"]) and each["integrity"] for each in packages.values())
    assert all(each.get("dev") for each in packages.values()), "nothing of npm is part of the page"


def test_the_page_asks_no_other_host_and_has_no_inline_code() -> None:
    page = (STUDIO / "static" / "index.html").read_text()
    assert not re.search(r"https?://|<style|style=|\son\w+=|javascript:", page)
    assert re.findall(r"<script[^>]*>", page) == ['<script src="/studio.js" defer>']
    script = (STUDIO / "static" / "studio.js").read_text()
    assert set(re.findall(r"https?://[\w./-]+", script)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", script)
