"""The tool that proves that a change leaves the bits of a run as they are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def digests(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.digests", "--only", "simco, tied", *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow  # three rounds of short runs
def test_a_difference_is_told_and_the_same_bits_are_the_same(tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    assert digests("--out", before).returncode == 0
    again = digests("--against", before)
    assert again.returncode == 0, again.stderr
    assert again.stdout.endswith("simco, tied  same\n")
    found = json.loads(before.read_text())
    found["simco, tied"]["backbone"] = "0" * 16
    before.write_text(json.dumps(found))
    other = digests("--against", before)
    assert (other.returncode, other.stdout.split()[-1]) == (1, "DIFFERS")
