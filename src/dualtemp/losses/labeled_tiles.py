"""Several positives per anchor, named by labels: the loss of each anchor and its gradient, made tile by tile.

Let A(i) be the keys of anchor i and P(i) those of its label. Each positive p is a pair of its own, whose negatives are
all other keys of the anchor, the other positives among them:

    d_ip(tau) = log sum_{j in A(i), j != p} e^(s_ij / tau) - s_ip / tau        W_ip(tau) = sigmoid(d_ip) = 1 - p_ip
    L_i       = mean over p of  W_ip(tau_beta) / W_ip(tau_alpha) x -log p_ip(tau_alpha)

and its gradient is the mean over p of W_ip(tau_beta) times that of d_ip(tau_alpha). With c = 1 / |P(i)| that is

    dL_i/ds_ij = (p_ij sum_p c r_ip - [j in P(i)] c r_ij) / tau_alpha          r_ip = W_ip(tau_beta) / W_ip(tau_alpha)

Where one positive outweighs all other keys, 1 - p_ip would lose its digits. Only the nearest positive, the top one, can
do so: its sums leave it out from the beginning; every other has p_ip <= 1/2, where 1 - p_ip is as good as p_ip.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dualtemp.first_derivative import first_derivative_only
from dualtemp.losses.constants import BITS
from dualtemp.losses.exclusion import Exclusion
from dualtemp.losses.product_plan import Tile, fixed_shift, make_tiles
from dualtemp.losses.temperature import Temperature, are_tied, is_infinite, learned, temperature_value
from dualtemp.losses.unit_vectors import require_no_transform, true_precision


def labeled_losses(
    a: Tensor,
    b: Tensor,
    anchor_labels: Tensor,
    key_labels: Tensor,
    tau_alpha: Temperature,
    tau_beta: Temperature | None = None,
    *,
    own: int | None = None,
    excluded: Exclusion | None = None,
) -> tuple[Tensor, Tensor]:
    """L_i (N,) of each anchor, and whether it counts (N,): it has a positive, and a key besides it. Else L_i is 0.

    Args:
        a: anchors, (N, D), unit length, float32 or float64.
        b: keys, (K, D), as `a`.
        anchor_labels: (N,).
        key_labels: (K,); a key of the anchor's label is its positive.
        tau_alpha: temperature of the vector, finite; a 0-d tensor receives its gradient.
        tau_beta: temperature of the scalar, inf allowed; None means `tau_alpha`.
        own: if given, key i + own is anchor i itself: neither a positive nor a negative.
        excluded: keys that do not exist for an anchor.
    """
    if torch.compiler.is_compiling():
        from dualtemp.losses.operators import labeled_losses_operator

        return labeled_losses_operator(a, b, anchor_labels, key_labels, tau_alpha, tau_beta, own, excluded)
    require_no_transform()
    plan = make_plan(a, b, tau_alpha, tau_beta, own, excluded)
    loss, counted = _LabelledLosses.apply(  # pyright: ignore
        a, b, learned(tau_alpha), anchor_labels, key_labels, plan
    )
    return loss, counted


def make_plan(
    a: Tensor,
    b: Tensor,
    tau_alpha: Temperature,
    tau_beta: Temperature | None,
    own: int | None,
    excluded: Exclusion | None,
) -> "Plan":
    """How `labeled_losses` walks over the product, by its arguments."""
    value = temperature_value(tau_alpha)
    return Plan(
        tau_alpha=value,
        tau_beta=value if tau_beta is None or tau_beta is tau_alpha else temperature_value(tau_beta),
        own=own,
        tiles=make_tiles(a.shape[0], b.shape[0], a.device.type, symmetric=False, kept=False),
        excluded=excluded if excluded is not None and excluded.any() else None,
    )


@dataclass(slots=True)
class Plan:
    """How the product is walked over."""

    tau_alpha: Temperature
    tau_beta: Temperature
    own: int | None
    tiles: list[Tile]
    excluded: Exclusion | None

    @property
    def tied(self) -> bool:
        """Whether both temperatures are the same."""
        return are_tied(self.tau_alpha, self.tau_beta)


@dataclass(slots=True)
class _Rows:
    """What is known of each anchor after the first walk, (N,) each."""

    count: Tensor  # |P(i)|
    keys: Tensor  # |A(i)|
    top: Tensor  # similarity to the nearest positive, and its place among the keys
    place: Tensor
    rest_alpha: Tensor  # log-sum-exp over A(i) without the top positive, at tau_alpha and at tau_beta
    rest_beta: Tensor
    others: Tensor  # sum of similarities to the other positives

    @property
    def counted(self) -> Tensor:
        return (self.count > 0) & (self.keys > 1)


class _LabelledLosses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, tau: Tensor | None, labels: Tensor, key_labels: Tensor, plan: Plan
    ) -> tuple[Tensor, Tensor]:
        with true_precision(a.device):
            loss, counted, coefficients, place = forward(a, b, labels, key_labels, plan)
        ctx.plan, ctx.inputs = plan, (tau,)
        ctx.save_for_backward(a, b, labels, key_labels, coefficients, place)
        ctx.mark_non_differentiable(counted)
        return loss, counted

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Any, ...]:
        a, b, labels, key_labels, coefficients, place = ctx.saved_tensors
        wants_a, wants_b, wants_tau, *_ = ctx.needs_input_grad
        with true_precision(a.device):
            da, db = backward(a, b, labels, key_labels, coefficients, place, gradient, ctx.plan, wants_b)
        dtau = gradient_of_temperature(a, da, ctx.plan).to(ctx.inputs[0]) if wants_tau else None
        return da if wants_a else None, db, dtau, None, None, None


def gradient_of_temperature(a: Tensor, da: Tensor, plan: Plan) -> Tensor:
    """-1 / tau sum_ij s_ij dL/ds_ij: L_i is a function of s / tau alone, and sum_j s_ij dL/ds_ij = a_i . da_i."""
    return -(a * da).sum() / plan.tau_alpha


def _tile(a: Tensor, b: Tensor, labels: Tensor, key_labels: Tensor, plan: Plan, tile: Tile) -> tuple[Tensor, Tensor]:
    """Similarities of a tile, -inf where the key does not exist for the anchor, and the mask of positives."""
    rows, keys = tile
    s = a[rows] @ b[keys].T
    positives = labels[rows, None] == key_labels[None, keys]
    if plan.own is not None:
        for x, nothing in ((s, -math.inf), (positives, False)):
            x.diagonal(rows.start + plan.own - keys.start).fill_(nothing)
    if plan.excluded is not None:
        excluded = plan.excluded.tile(rows, keys)
        s.masked_fill_(excluded, -math.inf)
        positives &= ~excluded
    return s, positives


def _sums(a: Tensor, b: Tensor, labels: Tensor, key_labels: Tensor, plan: Plan) -> _Rows:
    """The first walk."""
    n = a.shape[0]
    rows_of = _Rows(
        count=labels.new_zeros(n, dtype=torch.long),
        keys=labels.new_full((n,), b.shape[0] - (plan.own is not None), dtype=torch.long),
        top=a.new_full((n,), -math.inf),
        place=labels.new_zeros(n, dtype=torch.long),
        rest_alpha=a.new_full((n,), -math.inf),
        rest_beta=a.new_full((n,), -math.inf),
        others=a.new_zeros(n),
    )
    for tile in plan.tiles:
        rows, keys = tile
        s, positives = _tile(a, b, labels, key_labels, plan, tile)
        count = positives.sum(1)
        rows_of.count[rows] += count
        rows_of.others[rows] += torch.where(positives, s, 0.0).sum(1)
        top, place = torch.where(positives, s, -math.inf).max(1)
        kept = s.gather(1, place[:, None])
        s.scatter_(1, place[:, None], torch.where(count[:, None] > 0, -math.inf, kept))  # if there is one to take out
        before = rows_of.top[rows].clone()
        nearer = top > before
        second = torch.where(nearer, before, top)
        for sums, tau in ((rows_of.rest_alpha, plan.tau_alpha), (rows_of.rest_beta, plan.tau_beta)):
            if (sums is rows_of.rest_beta and plan.tied) or is_infinite(tau):
                continue
            rest = torch.logaddexp(sums[rows], _log_sum_exp(s, tau))
            sums[rows] = torch.logaddexp(rest, second / tau)
        rows_of.top[rows] = torch.where(nearer, top, before)
        rows_of.place[rows] = torch.where(nearer, place + keys.start, rows_of.place[rows])
    if plan.excluded is not None:
        rows_of.keys = plan.excluded.count(plan.tiles, (n, b.shape[0]), plan.own)[0]
    rows_of.others -= torch.where(rows_of.count > 0, rows_of.top, 0.0)
    if plan.tied:
        rows_of.rest_beta = rows_of.rest_alpha
    elif is_infinite(plan.tau_beta):
        rows_of.rest_beta = (rows_of.keys - 1).to(a.dtype).log()
    return rows_of


def _log_sum_exp(s: Tensor, tau: Temperature) -> Tensor:
    """Of rows of s / tau, s at most 1."""
    if not fixed_shift(tau, s.dtype):
        return torch.logsumexp(s / tau, 1)
    return s.sub(1).mul_(BITS / tau).exp2_().sum(1).log_().add_(1 / tau)


def forward(
    a: Tensor, b: Tensor, labels: Tensor, key_labels: Tensor, plan: Plan
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """L_i, whether the anchor counts, what `backward` needs of it (6, N), and the place of its top positive."""
    rows_of = _sums(a, b, labels, key_labels, plan)
    counted = rows_of.counted
    c = counted.to(a.dtype) / rows_of.count.clamp(min=1)
    top = torch.where(counted, rows_of.top, 0.0)

    def of_top(rest: Tensor, tau: Temperature) -> tuple[Tensor, Tensor]:
        """d of the top positive, and log-sum-exp over all keys; at inf for an anchor that does not count."""
        d = torch.where(counted, rest - top / tau, 0.0)
        return d, torch.where(counted, torch.logaddexp(rest, top / tau), math.inf)

    d_alpha, all_alpha = of_top(rows_of.rest_alpha, plan.tau_alpha)
    d_beta, all_beta = of_top(rows_of.rest_beta, plan.tau_beta)
    w_top = torch.sigmoid(d_beta)
    if plan.tied:
        loss = c * -F.logsigmoid(-d_alpha)
        others = (rows_of.count - 1).to(a.dtype)
        loss += torch.where(counted, c * (others * all_alpha - rows_of.others / plan.tau_alpha), 0.0)
        ratio = c * others  # sum of c r over the other positives
    else:
        # softplus(d) / sigmoid(d), as for one positive; 1 to the last digit where e^-d would overflow.
        low = d_alpha.clamp(min=math.log(torch.finfo(a.dtype).eps))
        loss, ratio = c * w_top * -F.logsigmoid(-low) * (1 + torch.exp(-low)), torch.zeros_like(c)
        for tile in plan.tiles:
            rows = tile[0]
            s, positives = _tile(a, b, labels, key_labels, plan, tile)
            _clear_top(positives, rows_of.place, tile)
            r, u = _ratio(s, positives, all_alpha[rows], all_beta[rows], plan)
            loss[rows] -= c[rows] * torch.where(positives, r * u, 0.0).sum(1)
            ratio[rows] += c[rows] * r.sum(1)
    w_alpha = torch.sigmoid(d_alpha)
    rest = torch.where(counted, rows_of.rest_alpha, math.inf)
    slope = c * w_top + w_alpha * ratio
    of_top_key = torch.where(counted, torch.sigmoid(-d_alpha) * ratio - c * w_top, 0.0)
    return loss, counted, torch.stack((rest, all_alpha, all_beta, c, slope, of_top_key)), rows_of.place


def _ratio(s: Tensor, positives: Tensor, alpha: Tensor, beta: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """r = W(tau_beta) / W(tau_alpha) of positives but the top one, else 0; log p(tau_alpha) of all keys."""
    u = s / plan.tau_alpha - alpha[:, None]
    if is_infinite(plan.tau_beta):
        weight = (1 - torch.exp(-beta))[:, None]
    else:
        weight = 1 - (s / plan.tau_beta).sub_(beta[:, None]).exp_()
    return torch.where(positives, weight / (1 - u.exp()), 0.0), u


def _clear_top(positives: Tensor, place: Tensor, tile: Tile) -> None:
    """Take the top positive out of the mask."""
    rows, keys = tile
    positives &= place[rows, None] != torch.arange(keys.start, keys.stop, device=place.device)


def backward(
    a: Tensor,
    b: Tensor,
    labels: Tensor,
    key_labels: Tensor,
    coefficients: Tensor,
    place: Tensor,
    gradient: Tensor,
    plan: Plan,
    wants_b: bool,
) -> tuple[Tensor, Tensor | None]:
    """Gradient for anchors and, if wanted, for keys, given that for the losses (N,)."""
    rest, all_alpha, all_beta, c, slope, of_top_key = coefficients
    da, db = torch.zeros_like(a), torch.zeros_like(b) if wants_b else None
    g = gradient / plan.tau_alpha
    for tile in plan.tiles:
        rows, keys = tile
        s, positives = _tile(a, b, labels, key_labels, plan, tile)
        top = place[rows, None] == torch.arange(keys.start, keys.stop, device=place.device)
        others = positives & ~top
        if plan.tied:
            r = others.to(a.dtype)
        else:
            r, _ = _ratio(s, others, all_alpha[rows], all_beta[rows], plan)
        weights = (s / plan.tau_alpha - rest[rows, None]).exp_().mul_(slope[rows, None])
        weights.addcmul_(r, c[rows, None], value=-1)
        weights = torch.where(top & positives, of_top_key[rows, None], weights).mul_(g[rows, None])
        da[rows].addmm_(weights, b[keys])
        if db is not None:
            db[keys].addmm_(weights.T, a[rows])
    return da, db
