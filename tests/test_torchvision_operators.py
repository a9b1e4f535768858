"""torchvision can be imported after the operators are declared, as often as one likes."""

import subprocess
import sys

import pytest

CODE = """
import gc
from dualtemp.torchvision_operators import declare_missing_operators
declare_missing_operators()
declare_missing_operators()
gc.collect()
import torchvision.ops
from torchvision.transforms import v2
declare_missing_operators()
print(v2.ColorJitter(0.4))
"""


@pytest.mark.slow
def test_torchvision_can_be_imported_once_the_operators_are_declared():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ColorJitter" in done.stdout
