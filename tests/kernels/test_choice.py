"""Where the fused kernels are used: nowhere by default, on a device that has passed, or as the environment says."""

from pathlib import Path

import pytest
import torch

from dualtemp.errors import UserError
from dualtemp.kernels import choice

CUDA = torch.device("cuda:0")


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """A CUDA device with a name that can be changed, an empty cache, and Triton."""
    about: dict[str, object] = {"name": "A100", "capability": (8, 0), "triton": True}
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path))
    monkeypatch.delenv("DUALTEMP_TRITON", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: about["name"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: about["capability"])
    monkeypatch.setattr(choice, "installed", lambda: about["triton"])
    return about


def test_a_device_is_chosen_once_it_has_passed_and_no_other_is(device: dict[str, object]) -> None:
    assert not choice.available(CUDA)
    choice.remember_pass(CUDA)
    assert choice.available(CUDA)
    for key, other in (("name", "H100"), ("capability", (9, 0)), ("triton", False)):
        before, device[key] = device[key], other
        assert not choice.available(CUDA), key
        device[key] = before


def test_a_pass_counts_for_the_kernels_that_passed(device: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    choice.remember_pass(CUDA)
    monkeypatch.setattr(choice, "VERSION", choice.VERSION + 1)
    assert not choice.available(CUDA)
    choice.remember_pass(CUDA)
    assert len(choice.marks_file().read_text().split("passed")) == 3  # both are kept


@pytest.mark.parametrize("content", ["", "[1]", "{", "null"])
def test_a_damaged_mark_is_no_pass(content: str, device: dict[str, object]) -> None:
    choice.marks_file().write_text(content)
    assert not choice.available(CUDA)
    choice.remember_pass(CUDA)
    assert choice.available(CUDA)


def test_the_environment_forces_the_kernels_on_and_off(
    device: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALTEMP_TRITON", "1")
    assert choice.available(CUDA)
    assert not choice.available(torch.device("mps"))
    device["triton"] = False
    with pytest.raises(UserError, match=r"triton is not installed: pip install 'dualtemp\[triton\]', or set"):
        choice.available(CUDA)
    device["triton"] = True
    choice.remember_pass(CUDA)
    monkeypatch.setenv("DUALTEMP_TRITON", "0")
    assert not choice.available(CUDA)


def test_the_cpu_takes_them_only_if_they_are_forced_and_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    for switch, interpreted, expected in (("1", "1", True), ("1", "0", False), ("", "1", False), ("0", "1", False)):
        monkeypatch.setenv("DUALTEMP_TRITON", switch)
        monkeypatch.setenv("TRITON_INTERPRET", interpreted)
        assert choice.available(cpu) is expected
