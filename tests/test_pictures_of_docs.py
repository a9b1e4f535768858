"""Pictures of docs/ that need no trained run."""

import importlib.util
import math
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_anchor_weights", DOCS / "draw_anchor_weights.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def numbers(svg: str) -> list[float]:
    return [float(word) for word in re.findall(r"-?\d+\.\d+", svg)]


def test_the_picture_of_the_weights_is_what_its_script_draws(script: ModuleType) -> None:
    drawn, kept = script.draw(), (DOCS / "anchor-weights.svg").read_text()
    assert re.sub(r"-?\d+\.\d+", "", drawn) == re.sub(r"-?\d+\.\d+", "", kept)
    assert numbers(drawn) == pytest.approx(numbers(kept), abs=0.11)  # rounded to .1; exp may differ by machine
    assert "anchor-weights.svg" in (DOCS / "which-loss.md").read_text()


def test_the_curves_are_the_formulas_of_the_page(script: ModuleType) -> None:
    d = torch.tensor([-5.0, 0.0, 3.0], dtype=torch.float64)
    curves = {name.split(",")[0].split(":")[0]: w.tolist() for name, w in script.curves(d).items()}
    M, tau, gamma, rho = 63, 0.1, 0.9, 0.3
    own = (
        tau - 0.01 * 0.9 * rho
    )  # equal negatives: log u + rho - slope is rho, and tau_lr (1 - tau_momentum) of it moves
    for place, value in enumerate(d.tolist()):
        away = (value - math.log(M)) * tau  # s - s_+, from d = log M + (s - s_+) / tau
        G, G_own, u = math.exp(away / tau), math.exp(away / own), 1 / M  # u of d = 0
        assert curves["tied"][place] == pytest.approx(1 / (1 + math.exp(-value)))
        assert curves["sigmoid"][place] == pytest.approx(M * math.exp(away) / (1 + M * math.exp(away)))
        assert curves["equal"][place] == 1
        assert curves["memory"][place] == pytest.approx(G / ((1 - gamma) * u + gamma * G))
        wanted = own / tau * G_own / ((1 - gamma) * u + gamma * G_own)
        assert curves["per image"][place] == pytest.approx(wanted)
