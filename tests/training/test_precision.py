"""Mixed precision, memory format and gradient clipping change how a run is computed, and it still learns."""

from pathlib import Path
from typing import Any

import pytest
import torch
from run_contents import everything

import dualtemp
from dualtemp.bf16_on_cpu import bf16_on_cpu

needs_bf16 = pytest.mark.skipif(bf16_on_cpu().outcome != "works", reason=bf16_on_cpu().reason)
# Eight steps at a rate at which something is learned.
RUN: dict[str, Any] = {
    "data": "digits",
    "backbone": "resnet_mini",
    "method": "simco",
    "batch": 64,
    "subset": 128,
    "epochs": 4,
    "warmup_epochs": 0,
    "lr": 0.2,
    "evaluate_every": 9,
    "device": "cpu",
    "quiet": True,
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "run"
    dualtemp.train(**RUN, out=path)
    return path


def floats(path: Path) -> dict[str, torch.Tensor]:
    found = everything(path).items()
    return {name: x for name, x in found if isinstance(x, torch.Tensor) and x.is_floating_point()}


@pytest.mark.parametrize("amp", [pytest.param("bf16", marks=[needs_bf16, pytest.mark.slow]), "fp16"])
def test_mixed_precision_learns_as_float32_does(amp: str, plain: Path, tmp_path: Path) -> None:
    dualtemp.train(**RUN, amp=amp, out=tmp_path / "run")
    losses, expected = ([line["loss"] for line in everything(path)["metrics"]] for path in (tmp_path / "run", plain))
    assert losses[-1] < losses[0]
    assert losses[0] != expected[0]
    assert losses == pytest.approx(expected, rel=0.02 if amp == "bf16" else 0.1)  # fp16 leaves out its first steps
    assert all(x.dtype in (torch.float32, torch.float64) for x in floats(tmp_path / "run").values())


@pytest.mark.slow
def test_channels_last_gives_the_same_run(tmp_path: Path) -> None:
    slowly = {**RUN, "lr": 0.01}
    for name in ("plain", "run"):
        dualtemp.train(**slowly, channels_last=name == "run", out=tmp_path / name)
    found = floats(tmp_path / "run")
    for name, expected in floats(tmp_path / "plain").items():
        torch.testing.assert_close(found[name], expected, rtol=1e-3, atol=1e-4, msg=lambda m, name=name: f"{name} {m}")


@pytest.mark.slow
def test_a_clipped_gradient_moves_the_weights_no_further_than_the_rate_allows(tmp_path: Path) -> None:
    """SGD without momentum and decay: each step moves the weights by at most lr * clip."""
    clip, lr = 1e-3, 0.2 * 64 / 256
    only = {**RUN, "momentum": 0.0, "weight_decay": 0.0, "epochs": 1, "evaluate_every": 1}
    moved = {}
    for name, extra in {"start": {"lr": 1e-30}, "clipped": {"clip_gradient": clip}, "free": {}}.items():
        dualtemp.train(**{**only, **extra}, out=tmp_path / name)
        moved[name] = torch.cat(
            [
                x.flatten().double()
                for key, x in floats(tmp_path / name).items()
                if key.endswith((".weight", ".bias")) and key.startswith(".method")
            ]
        )
    assert 0 < (moved["clipped"] - moved["start"]).norm() <= 2 * lr * clip * 1.001
    assert (moved["free"] - moved["start"]).norm() > 2 * lr * clip


@pytest.mark.slow
def test_large_seeds_and_dropout_are_fine_and_repeat(tmp_path: Path) -> None:
    words = {**RUN, "epochs": 1, "seed": 2**40 + 1, "method": "moco", "dictionary_size": 64, "vector_size": 16}
    for name in ("one", "other"):
        dualtemp.train(**words, vector_sampling="random", out=tmp_path / name)
    for key, value in floats(tmp_path / "one").items():
        assert torch.equal(value, floats(tmp_path / "other")[key])
