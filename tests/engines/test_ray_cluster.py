import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "cluster" / "ray_here.py"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray (70 MB) is not installed: pip install 'dualtemp[ray]'")
def test_grids_and_parts_on_ray_survive_a_killed_node_and_a_stop() -> None:
    ended = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("bit for bit: [True, True]") == 2
