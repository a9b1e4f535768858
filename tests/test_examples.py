"""The examples of docs/examples, run as a reader would, in small."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
PLUGINS = ("my_framework.py", "my_measure.py", "my_parts.py", "zip_source.py")  # run by tests of their own


def printed(name: str, folder: Path, **environment: str) -> str:
    """What an example prints; it must end well."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_way_from_images_to_an_encoder(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "it"
    said = printed("from_images_to_encoder.py", tmp_path, OUT=str(out), EPOCHS="2")
    assert "1797 images, 128 features each" in said
    assert (out / "report.html").stat().st_size > 1000
    measured = json.loads((out / "evaluation.json").read_text())["measured"]
    assert {each["encoder"] for each in measured} >= {"trained", "untrained", "raw pixels"}
    for each in measured:
        assert each["encoder"] == "online" or f"{each['top1']:.2f} %" in said
    with np.load(out / "features.npz") as arrays:
        assert arrays["features"].shape == (1797, 128)
    assert {"model.safetensors", "model.pt2", "README.md", "preprocessing.json"} <= set(os.listdir(out / "export"))


@pytest.mark.slow
def test_the_loss_in_a_plain_loop_goes_down(tmp_path: Path) -> None:
    said = printed("loss_in_a_plain_loop.py", tmp_path, STEPS="60")
    first, last = map(float, re.findall(r"from ([\d.]+) to ([\d.]+)", said)[0])
    assert last < 0.8 * first


@pytest.mark.slow
def test_two_towers_find_the_names_of_digits_and_learn_their_temperature(tmp_path: Path) -> None:
    said = printed("two_towers.py", tmp_path, STEPS="120")
    first, last, tau = map(float, re.findall(r"from ([\d.]+) to ([\d.]+), tau ([\d.]+)", said)[0])
    assert last < 0.5 * first
    assert tau != 0.07
    assert float(re.findall(r"([\d.]+)% of the images", said)[0]) > 80


@pytest.mark.skipif(importlib.util.find_spec("lightly") is None, reason="lightly is not installed (extra: peers)")
@pytest.mark.slow
def test_the_loss_inside_lightly_trains(tmp_path: Path) -> None:
    said = printed("loss_in_lightly.py", tmp_path, STEPS="3")
    losses = [float(word) for word in re.findall(r"loss ([\d.]+)", said)]
    assert len(losses) == 3
    assert all(np.isfinite(losses))
    assert losses[0] != losses[2]


def test_every_example_is_run_here() -> None:
    source = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f'printed("{path.name}"' in source or path.name in PLUGINS
