"""Unit vectors, and their similarity product reduced while it is made: log-sum-exp of its rows and columns.

The N x K matrix is never needed whole. Forward walks over tiles and keeps a few numbers per row and per column; both
temperatures, both directions and the positives are read from the same tile. If only the anchors want a gradient,
forward also collects the vector component sum_j p^_ij k_j, which is all that backward needs. Otherwise backward makes
the tiles again, or finds them kept where the whole matrix is small; the result is the same.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dualtemp.first_derivative import first_derivative_only
from dualtemp.kernels import choice as fused
from dualtemp.losses.constants import BITS
from dualtemp.losses.exclusion import Exclusion
from dualtemp.losses.one_tile import gradient_one_tile, reduce_one_tile
from dualtemp.losses.product_plan import Plan, Walk, fixed_shift, make_plan
from dualtemp.losses.temperature import Temperature, are_tied, is_infinite, learned
from dualtemp.losses.unit_vectors import require_no_transform, true_precision, unit

__all__ = ["Reduced", "log_sum_exp", "true_precision", "unit"]


class Reduced(NamedTuple):
    """The similarities of anchors `a` (N, D) and keys `b` (K, D), reduced."""

    alpha: Tensor  # (1, N) log-sum-exp of s_ij / tau_alpha over the negatives, with gradient; (2, N) both directions;
    # -inf where an anchor has no negatives
    beta: Tensor  # the same at tau_beta, detached
    own: Tensor  # (N,) similarity to the anchor's own key, with gradient; empty where there is none
    vector: Tensor  # (N, D) sum_j p^_ij(tau_alpha) b_j, detached; empty where not asked for


def log_sum_exp(
    a: Tensor,
    b: Tensor,
    tau_alpha: Temperature,
    tau_beta: Temperature | None = None,
    *,
    own: int | None = None,
    both_directions: bool = False,
    vector: bool = False,
    excluded: Exclusion | None = None,
) -> Reduced:
    """Reduce the similarities of unit vectors `a` (N, D) and `b` (K, D) at one or two temperatures.

    Args:
        a: anchors, (N, D), unit length, float32 or float64.
        b: keys, (K, D), as `a`. If it is `a` itself, half of the tiles can serve for both halves of the matrix.
        tau_alpha: temperature of the part that carries the gradient (at inf there is none). A 0-d tensor receives its
            own gradient; its value is read on the CPU, and never on a device, where it costs a pass for the maximum.
        tau_beta: temperature of the detached part; None means `tau_alpha`.
        own: if given, key i + own is anchor i's own key, and is excluded from its negatives.
        both_directions: take the keys for anchors too, and the anchors for keys (K = N).
        vector: also give the vector component; for one direction.
        excluded: keys that are no negatives, besides an anchor's own.
    """
    walk = Walk.of(a, b, tau_alpha, both_directions, vector, excluded)
    if torch.compiler.is_compiling():
        from dualtemp.losses.operators import log_sum_exp_operator

        return log_sum_exp_operator(a, b, walk, tau_alpha, tau_beta, own, both_directions, vector, excluded)
    require_no_transform()
    plan = make_plan(
        a, b, walk, tau_alpha, tau_beta, own=own, both_directions=both_directions, vector=vector, excluded=excluded
    )
    return Reduced(*_TiledLogSumExp.apply(a, b, learned(tau_alpha), plan))  # pyright: ignore


class _TiledLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, tau: Tensor | None, plan: Plan) -> tuple[Tensor, ...]:
        with true_precision(a.device):
            alpha, beta, own, vector, kept = reduce(a, b, plan)
        ctx.plan = plan
        # If the vector component is there, do not save the dictionary: it may receive new keys before backward.
        again = plan.own is not None or not plan.vector or ctx.needs_input_grad[1]
        ctx.save_for_backward(a, b if again else None, alpha, vector, kept, None if tau is None else own)
        ctx.temperature = tau  # backward only needs its device and dtype
        ctx.mark_non_differentiable(beta, vector)
        ctx.set_materialize_grads(False)
        return alpha, beta, own, vector

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, of_lse: Tensor | None, _: None, of_own: Tensor | None, __: None) -> tuple[Any, ...]:
        a, b, lse, vector, kept, own = ctx.saved_tensors
        da, db, dtau = gradient(a, b, ctx.plan, lse, vector, kept, own, of_lse, of_own, ctx.needs_input_grad[:3])
        return da, db, None if dtau is None else dtau.to(ctx.temperature), None


def gradient(
    a: Tensor,
    b: Tensor | None,
    plan: Plan,
    lse: Tensor,
    vector: Tensor,
    kept: Tensor,
    own: Tensor | None,
    of_lse: Tensor | None,
    of_own: Tensor | None,
    wants: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradient for a, b and tau_alpha, as far as wanted, given that for log-sum-exp and for own similarities.

    A dictionary `b` may be None if neither it nor own keys want a gradient and the vector component is there.
    """
    wants_a, wants_b, wants_tau = wants
    of_lse = torch.zeros_like(lse) if of_lse is None else of_lse
    da = db = dtau = None
    with true_precision(a.device):
        if plan.vector and (wants_a or wants_tau):
            da = vector * (of_lse[0] / plan.tau_alpha)[:, None]
            if of_own is not None and b is not None:
                da.addcmul_(b[plan.own : (plan.own or 0) + a.shape[0]], of_own[:, None])
        if b is not None and (wants_b or (da is None and (wants_a or wants_tau))):
            made, db = _gradient(a, b, plan, lse, of_lse, of_own, kept, da is None, wants_b)
            da = made if da is None else da
        if wants_tau and da is not None and own is not None:
            dtau = _gradient_of_temperature(a, da, own, of_own, plan)
    return da if wants_a else None, db, dtau


def _gradient_of_temperature(a: Tensor, da: Tensor, own: Tensor, of_own: Tensor | None, plan: Plan) -> Tensor:
    """-1 / tau sum_ij s_ij dL/ds_ij: log-sum-exp is a function of s / tau alone, and sum_j s_ij dL/ds_ij = a_i . da_i.

    Own similarities are not divided by tau, so what they have put into `da` is taken out.
    """
    total = (a * da).sum() / (2 if plan.symmetric else 1)  # as anchors and as keys
    if of_own is not None:
        total = total - (of_own * own).sum()
    return -total / plan.tau_alpha


def _product(scaled: Tensor, b: Tensor, rows: slice, keys: slice, plan: Plan, out: Tensor, own: Tensor) -> Tensor:
    """The tile BITS (s_ij - 1) / tau_alpha, -inf where the key is the anchor's own; `scaled` is BITS a / tau_alpha.

    `own` (N,) receives BITS s_ij / tau_alpha of the latter.
    """
    tile = torch.mm(scaled[rows], b[keys].T, out=_shaped(out, rows, keys))
    if plan.own is not None:
        entries, anchors = plan.own_keys(tile, rows, keys)
        own[anchors] = entries
        entries.fill_(-math.inf)
    if plan.excluded is not None:
        tile.masked_fill_(plan.excluded.tile(rows, keys), -math.inf)
    return tile.sub_(BITS / plan.tau_alpha)


class _Sums:
    """Log-sum-exp at one temperature, of tiles BITS (s - 1) / tau_alpha that come one after another."""

    def __init__(self, a: Tensor, plan: Plan, tau: Temperature) -> None:
        self.tau, self.factor, self.fixed = tau, plan.tau_alpha / tau, fixed_shift(tau, a.dtype)
        self.scaled = isinstance(self.factor, Tensor) or self.factor != 1
        # Of a symmetric matrix only the upper half is walked over: its columns are rows of the lower half.
        self.sums = a.new_full((1 + plan.both_directions, a.shape[0]), 0.0 if self.fixed else -math.inf)
        self.rows, self.columns = self.sums[0], self.sums[-1]
        self.vector: Tensor | None = None

    def add(self, tile: Tensor, rows: slice, keys: slice, columns: bool, out: Tensor) -> Tensor:
        """Take the tile in; `out`, which may be the tile itself, receives its exponentials if the shift is fixed."""
        if not self.fixed:
            return self._add_with_maximum(tile, rows, keys, columns)
        exponentials = (torch.mul(tile, self.factor, out=out) if self.scaled else tile).exp2_()
        self.rows[rows].add_(exponentials.sum(1))
        if columns:
            self.columns[keys].add_(exponentials.sum(0))
        if self.vector is not None:
            self.vector[rows].addmm_(exponentials, self.keys[keys])
        return exponentials

    def _add_with_maximum(self, tile: Tensor, rows: slice, keys: slice, columns: bool) -> Tensor:
        tile = tile * (self.factor / BITS)
        before = self.rows[rows].clone()
        now = torch.logaddexp(before, torch.logsumexp(tile, 1))
        self.rows[rows] = now
        if columns:
            self.columns[keys] = torch.logaddexp(self.columns[keys], torch.logsumexp(tile, 0))
        if self.vector is not None:
            now = _without_empty(now)
            weights = (tile - now[:, None]).exp_()
            self.vector[rows] = (self.vector[rows] * (before - now).exp()[:, None]).addmm_(weights, self.keys[keys])
        return tile

    def collect_vector(self, a: Tensor, b: Tensor) -> None:
        """From now on, add up the vector component too."""
        self.vector, self.keys = torch.zeros_like(a), b

    def result(self) -> Tensor:
        """Log-sum-exp of s / tau; the vector component becomes a mean."""
        if self.fixed:
            if self.vector is not None:
                self.vector.div_(self.rows.clamp(min=torch.finfo(self.rows.dtype).tiny)[:, None])
            self.sums.log_()
        return self.sums.add_(1 / self.tau)


def reduce(a: Tensor, b: Tensor, plan: Plan) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Log-sum-exp at tau_alpha and at tau_beta, own similarities, the vector component, the kept exponentials."""
    none = a.new_empty(0)
    if fused.takes(a, plan):
        return *fused.reduce(a, b, plan), none
    if plan.is_one_tile(a.dtype):
        alpha, beta, *others = reduce_one_tile(a, b, plan)
        own, vector, kept = (none if x is None else x for x in others)
        return alpha, beta, own, vector, kept
    own = none if plan.own is None else a.new_empty(a.shape[0])
    if is_infinite(plan.tau_alpha):  # every key weighs the same
        if plan.own is not None:
            own = (a * b[plan.own : plan.own + a.shape[0]]).sum(-1)
        return plan.equal_keys(a, b), plan.equal_keys(a, b), own, none, none
    alpha = _Sums(a, plan, plan.tau_alpha)
    if plan.vector:
        alpha.collect_vector(a, b)
    two = not (are_tied(plan.tau_alpha, plan.tau_beta) or is_infinite(plan.tau_beta))
    beta = _Sums(a, plan, plan.tau_beta) if two else None
    scaled = a * (BITS / plan.tau_alpha)
    kept = a.new_empty(a.shape[0] * b.shape[0]) if plan.kept else none  # tile after tile
    buffer = kept if plan.kept else _buffer(a, plan)
    second = _buffer(a, plan) if beta else none
    for rows, keys in plan.tiles:
        tile = _product(scaled, b, rows, keys, plan, buffer, own)
        if plan.kept:
            buffer = buffer[tile.numel() :]
        columns = plan.both_directions or (plan.symmetric and rows != keys and not plan.kept)
        if beta:
            beta.add(tile, rows, keys, columns, out=second[: tile.numel()].view_as(tile))
        alpha.add(tile, rows, keys, columns, out=tile)
    lse, vector = alpha.result(), none if alpha.vector is None else alpha.vector
    if beta:
        return lse, beta.result(), own.mul_(plan.tau_alpha / BITS), vector, kept
    detached = plan.equal_keys(a, b) if is_infinite(plan.tau_beta) else lse.clone()
    return lse, detached, own.mul_(plan.tau_alpha / BITS), vector, kept


def _without_empty(lse: Tensor) -> Tensor:
    """Zero in place of -inf, so that exp(s - lse) is 0 where there are no negatives, not exp(-inf + inf)."""
    return lse.masked_fill(lse == -math.inf, 0.0)


def _shaped(buffer: Tensor, rows: slice, keys: slice) -> Tensor:
    """The beginning of a buffer, as a tile."""
    height, width = rows.stop - rows.start, keys.stop - keys.start
    return buffer[: height * width].view(height, width)


def _buffer(a: Tensor, plan: Plan) -> Tensor:
    rows, keys = plan.tiles[0]
    return a.new_empty((rows.stop - rows.start) * (keys.stop - keys.start))


def _gradient(
    a: Tensor,
    b: Tensor,
    plan: Plan,
    lse: Tensor,
    of_lse: Tensor,
    of_own: Tensor | None,
    kept: Tensor,
    wants_a: bool,
    wants_b: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradient for a and b, given that for log-sum-exp, (1, N) or (2, N), and for own similarities (N,).

    It is a product with the matrix dL/ds_ij = g_i p^_ij / tau_alpha, plus the same of the columns; of_own for own keys.
    """
    if fused.takes(a, plan):
        return fused.gradient(a, b, plan, lse, of_lse, of_own, wants_a, wants_b)
    if plan.kept and plan.is_one_tile(a.dtype):
        return gradient_one_tile(a, b, plan, lse, of_lse, of_own, kept, wants_a, wants_b)
    tau, fixed = plan.tau_alpha, fixed_shift(plan.tau_alpha, a.dtype)
    da = torch.zeros_like(a) if wants_a else None
    # Both arguments of a symmetric product are the same tensor: its whole gradient goes to the first.
    db = da if plan.symmetric else torch.zeros_like(b) if wants_b else None
    if plan.symmetric and of_own is not None:
        of_own = 2 * of_own  # an anchor's own key is the anchor itself: s_ii = a_i . a_i
    columns = plan.both_directions or plan.symmetric
    # p^_ij = exp((s_ij - 1) / tau) / exp(lse_i - 1 / tau); without a fixed shift the two may not be taken apart.
    shift, weight = lse - 1 / tau, of_lse / tau
    if plan.excluded is not None:
        shift = _without_empty(shift)
    if fixed:
        weight *= torch.exp(-shift)
    scaled = a if plan.kept else a * (BITS / tau)
    own = lse.new_empty(lse.shape[1])  # known from forward, written again
    buffer, second = kept if plan.kept else _buffer(a, plan), _buffer(a, plan)
    for rows, keys in plan.tiles:
        if plan.kept:
            tile = _shaped(buffer, rows, keys)
            buffer = buffer[tile.numel() :]
        elif fixed:
            tile = _product(scaled, b, rows, keys, plan, buffer, own).exp2_()
        else:
            tile = _product(scaled, b, rows, keys, plan, buffer, own).mul_(1 / BITS)
        weights = second[: tile.numel()].view_as(tile)
        if fixed and columns:
            torch.add(weight[0, rows, None], weight[-1, None, keys], out=weights).mul_(tile)
        elif fixed:
            torch.mul(tile, weight[0, rows, None], out=weights)
        else:
            torch.sub(tile, shift[0, rows, None], out=weights).exp_().mul_(weight[0, rows, None])
            if columns:
                weights.addcmul_((tile - shift[-1, None, keys]).exp_(), weight[-1, None, keys])
        if of_own is not None:
            entries, anchors = plan.own_keys(weights, rows, keys)
            entries.copy_(of_own[anchors])
        if da is not None:
            da[rows].addmm_(weights, b[keys])
        # Of a symmetric matrix that is not kept, a tile off the diagonal stands for its mirror image too.
        if db is not None and not (plan.symmetric and (plan.kept or rows == keys)):
            db[keys].addmm_(weights.T, a[rows])
    return da, None if plan.symmetric else db
