"""A package of somebody else's that is really built and installed: what it declares is there without a flag."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from command_processes import PATIENCE
from drawn_photos import draw_photos

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "of-somebody-else"
version = "1"

[project.entry-points]
"dualtemp.frameworks" = { invariance = "of_somebody_else.my_framework" }
"dualtemp.recipes" = { gentle = "of_somebody_else.my_parts:gentle" }
"dualtemp.backbones" = { tiny = "of_somebody_else.my_parts" }
"dualtemp.sources" = { zip = "of_somebody_else.zip_source" }
"dualtemp.measures" = { centroid_top1 = "of_somebody_else.my_measure" }
"""
# Metadata as pip leaves them; the module was deleted by hand.
BROKEN = "[dualtemp.{group}]\nmine = nowhere.to_be_found\n"


def dualtemp(site: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command where `site` is among the folders of installed packages."""
    paths = [str(site), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "dualtemp", *map(str, words)],
        env={**environment, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed a package made of the examples."""
    pytest.importorskip("hatchling", reason="needs the dev extra")
    project, target = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("site")
    (project / "pyproject.toml").write_text(PROJECT)
    package = project / "of_somebody_else"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("my_framework.py", "my_parts.py", "zip_source.py", "my_measure.py"):
        shutil.copy(EXAMPLES / name, package)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--target", str(target), str(project)], check=True, timeout=PATIENCE)
    return target


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs that only the package's source can open."""
    root = tmp_path_factory.mktemp("photographs")
    with zipfile.ZipFile(root / "photos.zip", "w") as archive:
        for part, count in (("train", 20), ("test", 8)):
            for label in (0, 1):
                for path in draw_photos(root / part / str(label), count, 100 * label):
                    archive.write(path, path.relative_to(root))
    return root / "photos.zip"


@pytest.mark.slow
def test_a_run_made_of_an_installed_packages_parts_is_trained_resumed_and_shown(
    site: Path, zipped: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ("--method", "invariance", "--decorrelation", "0.02", "--recipe", "gentle", "--backbone", "tiny")
    words = (*words, "--data", zipped, "--image-size", "16", "--batch", "8", "--workers", "2", "--knn", "3")
    ended = dualtemp(site, "train", *words, "--epochs", "1", "--no-page", "--out", run)
    assert ended.returncode == 0, ended.stderr
    ended = dualtemp(site, "resume", run, "--epochs", "2")
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert all(0 <= line["centroid_top1"] <= 100 for line in lines)
    assert f"centroid {lines[-1]['centroid_top1']:.2f} %" in ended.stdout
    page = (run / "report.html").read_text()
    assert "Nearest centroid, top-1" in page
    assert "decorrelation" in page
    listed = json.loads(dualtemp(site, "runs", tmp_path, "--json").stdout)
    assert "invariance" in json.dumps(listed)
    assert "--decorrelation" in dualtemp(site, "train", "--help").stdout

    unknown = dualtemp(tmp_path, "train", *words, "--out", tmp_path / "without")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1), "the package alone brings these words"
    assert not (tmp_path / "without").exists()


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("frameworks", ["train", "--data", "digits", "--out", "{}/run"]),
        ("measures", ["train", "--data", "digits", "--out", "{}/run"]),
    ],
)
def test_an_installed_package_that_fails_is_one_line_that_names_it(
    group: str, words: list[str], tmp_path: Path
) -> None:
    metadata = tmp_path / "site" / "broken-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(BROKEN.format(group=group))
    ended = dualtemp(tmp_path / "site", *(word.format(tmp_path) for word in words))
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert "nowhere.to_be_found" in ended.stderr
    assert "repair or uninstall the package broken" in ended.stderr
    assert not (tmp_path / "run").exists()
