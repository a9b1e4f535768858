"""Numbers of the explorer's page, read in a browser, and compared with dualtemp.losses.hardness in float64."""

import base64
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dualtemp.losses.hardness import entropy, inter_anchor_weight, intra_anchor_weights, log_odds, relative_penalty

EXACT = 1e-6  # relative


def embedded(page: Path) -> tuple[Tensor, Tensor]:
    """Similarities (N,) and (N, K) as the page carries them, in float64."""
    text = page.read_text()
    found = [re.findall(rf'"{name}": "([^"]*)"', text)[0] for name in ("positive", "negatives")]
    parts = [base64.b64decode(json.loads(f'"{words}"')) for words in found]
    positive, negatives = (torch.frombuffer(bytearray(part), dtype=torch.float32).double() for part in parts)
    return positive, negatives.view(len(positive), -1)


def number(view: Any, id: str) -> float:
    return float(view.locator(f"#{id}").get_attribute("data-value"))


def slide(view: Any, id: str, place: int) -> None:
    view.locator(f"#{id}").evaluate(
        "(slider, place) => { slider.value = place; slider.dispatchEvent(new Event('input', {bubbles: true})); }", place
    )


def temperatures(view: Any) -> tuple[float, float, int]:
    found = [view.locator(f"#{id}-value").inner_text().replace("∞", "inf") for id in ("alpha", "beta", "size")]
    return float(found[0]), float(found[1]), int(found[2].replace(",", ""))


def column(items: list[dict[str, str]], name: str) -> Tensor:
    return torch.tensor([float(item[name]) for item in items], dtype=torch.float64)


def agrees(view: Any, s: tuple[Tensor, Tensor]) -> None:
    """Every number on the page is that of dualtemp.losses.hardness at the temperatures that it names."""
    tau_alpha, tau_beta, keys = temperatures(view)
    positive, negatives = s[0], s[1][:, :keys]
    d = log_odds(positive, negatives, tau_beta)
    W, r = inter_anchor_weight(d), relative_penalty(d)
    p = intra_anchor_weights(negatives, tau_alpha)
    effective = entropy(p).exp()
    buttons = view.locator("#anchors button").evaluate_all("all => all.map(b => ({...b.dataset}))")
    anchors = [int(button["anchor"]) for button in buttons]
    assert sorted(anchors) == list(range(len(positive)))
    assert d[anchors].diff().max() <= 1e-9  # the hardest first
    torch.testing.assert_close(column(buttons, "w"), W[anchors], rtol=EXACT, atol=0)
    torch.testing.assert_close(column(buttons, "r"), r[anchors], rtol=EXACT, atol=0)
    assert number(view, "entropy") == pytest.approx(entropy(r).item(), rel=EXACT)
    assert number(view, "maximum") == pytest.approx(math.log(len(positive)), rel=EXACT)
    tenth = r.sort(descending=True).values[: math.ceil(len(r) / 10)].sum().item()
    assert number(view, "tenth") == pytest.approx(tenth, rel=EXACT)
    assert number(view, "mean-W") == pytest.approx(W.mean().item(), rel=EXACT)
    (chosen,) = view.locator("#anchors [aria-pressed=true]").evaluate_all(
        "all => all.map(b => Number(b.dataset.anchor))"
    )
    assert number(view, "effective") == pytest.approx(effective[chosen].item(), rel=EXACT)
    assert number(view, "effective-mean") == pytest.approx(effective.mean().item(), rel=EXACT)
    items = view.locator("#negatives li:not([hidden])").evaluate_all("all => all.map(b => ({...b.dataset}))")
    top = p[chosen].sort(descending=True).values[: len(items)]
    assert len(items) == min(16, keys)
    assert [float(item["p"]) for item in items] == pytest.approx(top.tolist(), rel=EXACT)
    assert [float(item["p"]) for item in items] == pytest.approx(
        p[chosen, [int(i["key"]) for i in items]].tolist(), rel=EXACT
    )
    texts = view.locator("body").inner_text()
    assert "NaN" not in texts
    assert "undefined" not in texts
    assert "Infinity" not in texts
