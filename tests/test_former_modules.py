"""Paths that the documentation once named."""

import subprocess
import sys

import pytest

from dualtemp.former_modules import MOVED


def test_a_former_path_gives_the_module_that_replaces_it_with_a_warning() -> None:
    program = f"""
import importlib, warnings
for old, new in {MOVED}.items():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        former = importlib.import_module(old)
    assert [str(each.message) for each in caught if each.category is DeprecationWarning] == [f"{{old}} is now {{new}}"]
    assert former is importlib.import_module(new)
    assert former.__spec__.name == new
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        __import__("dualtemp.nonsense")
