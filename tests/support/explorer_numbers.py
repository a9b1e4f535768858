"""Numbers of the explorer's page, read in a browser, and compared with dualtemp.losses in float64."""

import base64
import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from dualtemp.losses.hardness import entropy, intra_anchor_weights, log_odds
from dualtemp.losses.image_memory import ImageMemory, ImageTemperatures
from dualtemp.losses.odds import Odds
from dualtemp.losses.weights import FORMULAS

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
    words = {"∞": "inf", "off": "nan"}  # no tau_beta beside a weight that has none
    shown = [view.locator(f"#{id}-value").inner_text() for id in ("alpha", "beta", "size")]
    found = [words.get(word) or word for word in shown]
    return float(found[0]), float(found[1]), int(found[2].replace(",", ""))


def column(items: list[dict[str, str]], name: str) -> Tensor:
    return torch.tensor([float(item[name]) for item in items], dtype=torch.float64)


class Expected(NamedTuple):
    """Of the anchors, (N,): the log-odds that order them, weights and shares, and the vector's temperatures."""

    d: Tensor
    W: Tensor
    r: Tensor
    tau: Tensor


def odds_at(s: tuple[Tensor, Tensor], tau: Tensor) -> Odds:
    """Log-odds (1, N) of anchors at a temperature each (N,)."""
    positive, negatives = s
    away = (negatives - positive[:, None]) / tau[:, None]
    slope = (intra_anchor_weights(negatives / tau[:, None], 1.0) * away).sum(1)
    d = log_odds(positive / tau, negatives / tau[:, None], 1.0)
    return Odds(d[None], log_negatives=math.log(negatives.shape[1]), tau=tau[None], slope=slope[None])


def weigh(member: str, s: tuple[Tensor, Tensor], keys: int, tau_alpha: float, tau_beta: float) -> Expected:
    """Weigh anchors as the losses do; those with a memory after one visit that met all keys."""
    positive, negatives = s[0], s[1][:, :keys]
    tau, index = torch.full_like(positive, tau_alpha), torch.arange(len(positive))
    if member in ("tied", "sigmoid"):
        d = log_odds(positive, negatives, tau_alpha if member == "tied" else tau_beta)
        weighed = FORMULAS["sigmoid"].weigh(Odds(d[None]))
    elif member == "equal":
        d = log_odds(positive, negatives, tau_alpha)
        weighed = FORMULAS["equal"].weigh(Odds(d[None]))
    else:
        memory = {"memory": ImageMemory, "per_image": ImageTemperatures}[member](len(positive), directions=1).double()
        if isinstance(memory, ImageTemperatures):
            tau = tau.clamp(memory.tau_min, memory.tau_max)
        start = tau[0].item()
        memory.weigh(odds_at(s, tau), index, start)
        own = memory.temperatures(index, 1, start)
        tau = tau if own is None else own.tau[0]
        odds = odds_at((positive, negatives), tau)
        d, weighed = odds.d[0], memory.weigh(odds, index, start)
    return Expected(d, weighed.scalar[0], torch.softmax(weighed.log_scalar()[0], 0), tau)


def hardest_tenth(found: Expected) -> float:
    return found.r[found.d.argsort(descending=True)[: math.ceil(len(found.r) / 10)]].sum().item()


def agrees(view: Any, s: tuple[Tensor, Tensor]) -> None:
    """Every number on the page is that of dualtemp.losses at the weight and the temperatures that it names."""
    tau_alpha, tau_beta, keys = temperatures(view)
    member = view.locator("#weight").input_value()
    assert math.isnan(tau_beta) == (member not in ("tied", "sigmoid"))
    positive, negatives = s[0], s[1][:, :keys]
    found = weigh(member, s, keys, tau_alpha, tau_beta)
    d, W, r = found.d, found.W, found.r
    p = intra_anchor_weights(negatives / found.tau[:, None], 1.0)
    effective = entropy(p).exp()
    buttons = view.locator("#anchors button").evaluate_all("all => all.map(b => ({...b.dataset}))")
    anchors = [int(button["anchor"]) for button in buttons]
    assert sorted(anchors) == list(range(len(positive)))
    assert d[anchors].diff().max() <= 1e-9  # the hardest first
    torch.testing.assert_close(column(buttons, "w"), W[anchors], rtol=EXACT, atol=0)
    torch.testing.assert_close(column(buttons, "r"), r[anchors], rtol=EXACT, atol=0)
    assert number(view, "entropy") == pytest.approx(entropy(r).item(), rel=EXACT)
    assert number(view, "maximum") == pytest.approx(math.log(len(positive)), rel=EXACT)
    assert number(view, "tenth") == pytest.approx(hardest_tenth(found), rel=EXACT)
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


def family_agrees(view: Any, s: tuple[Tensor, Tensor], tau_beta: float) -> None:
    """The table of all members is that of dualtemp.losses; the page does not show tau_beta beside some weights."""
    tau_alpha, _, keys = temperatures(view)
    (chosen,) = view.locator("#anchors [aria-pressed=true]").evaluate_all(
        "all => all.map(b => Number(b.dataset.anchor))"
    )
    rows = view.locator("#family tr").evaluate_all("all => all.map(row => ({...row.dataset}))")
    assert [row["member"] for row in rows] == ["tied", "sigmoid", "equal", "memory", "per_image"]
    for row in rows:
        found = weigh(row["member"], s, keys, tau_alpha, tau_beta)
        wanted = [found.W[chosen].item(), found.r[chosen].item(), entropy(found.r).exp().item(), hardest_tenth(found)]
        assert [float(row[name]) for name in ("w", "r", "effective", "tenth")] == pytest.approx(wanted, rel=EXACT)
