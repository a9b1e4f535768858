"""Unit vectors, and their similarity product reduced while it is made: log-sum-exp of its rows and columns.

The N x K matrix is never needed whole. Forward walks over tiles and keeps a few numbers per row and per column; both
temperatures, both directions and the positives are read from the same tile. If only the anchors want a gradient,
forward also collects the vector component sum_j p^_ij k_j, which is all that backward needs. Otherwise backward makes
the tiles again, or finds them kept where the whole matrix is small; the result is the same.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dualtemp.first_derivative import first_derivative_only
from dualtemp.kernels import choice as fused

# A tile that stays in a core's cache; accelerators want fewer, larger ones.
TILE_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 24, "mps": 1 << 22}
# Up to here (64 MiB in float32) the tiles are kept for backward: not making them again saves a quarter of the time.
KEPT_ELEMENTS = 1 << 24
# Tiles are in base 2, because exp2 takes half the time of exp.
BITS = 1 / math.log(2)


class Reduced(NamedTuple):
    """What is left of the similarities of anchors `a` (N, D) and keys `b` (K, D)."""

    alpha: Tensor  # (1, N) log-sum-exp of s_ij / tau_alpha over the negatives, with gradient; (2, N) both directions
    beta: Tensor  # the same at tau_beta, detached
    own: Tensor  # (N,) similarity to the anchor's own key, with gradient; empty where there is none
    vector: Tensor  # (N, D) sum_j p^_ij(tau_alpha) b_j, detached; empty where not asked for


def log_sum_exp(
    a: Tensor,
    b: Tensor,
    tau_alpha: float,
    tau_beta: float | None = None,
    *,
    own: int | None = None,
    both_directions: bool = False,
    vector: bool = False,
) -> Reduced:
    """Reduce the similarities of unit vectors `a` (N, D) and `b` (K, D) at one or two temperatures.

    Args:
        a: anchors, (N, D), unit length, float32 or float64.
        b: keys, (K, D), as `a`. If it is `a` itself, half of the tiles can serve for both halves of the matrix.
        tau_alpha: temperature of the part that carries the gradient (at inf there is none).
        tau_beta: temperature of the detached part; None means `tau_alpha`.
        own: where given, key i + own belongs to anchor i and is not among its negatives.
        both_directions: take the keys for anchors too, and the anchors for keys (K = N).
        vector: also give the vector component; for one direction.
    """
    backward = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    # Rows are columns too, so half of the matrix is enough; columns as anchors or the vector component want all of it.
    symmetric = b is a and not (both_directions or vector)
    anchors_alone = backward and not (b.requires_grad or both_directions or symmetric)
    N, K = a.shape[0], b.shape[0]
    kept = backward and not anchors_alone and N * K <= KEPT_ELEMENTS and _fixed_shift(tau_alpha, a.dtype)
    plan = _Plan(
        tau_alpha,
        tau_alpha if tau_beta is None else tau_beta,
        own,
        both_directions,
        symmetric,
        vector=vector or anchors_alone,
        kept=kept,
        tiles=_tiles(N, K, a.device.type, symmetric, kept),
    )
    return Reduced(*_TiledLogSumExp.apply(a, b, plan))  # pyright: ignore


def unit(*embeddings: Tensor, skip: bool = False) -> list[Tensor]:
    """Normalise embeddings (..., D) to length 1, in float32 or, if any of them is float64, in float64; with gradient.

    `skip` says that they are unit vectors already, and only converts them.
    """
    dtype = torch.float64 if any(x.dtype == torch.float64 for x in embeddings) else torch.float32
    converted = [x.to(dtype) for x in embeddings]
    return converted if skip else list(_Unit.apply(*converted))  # pyright: ignore


class _Unit(torch.autograd.Function):
    """x / |x| with a third of the operations that autograd would take for its gradient."""

    @staticmethod
    def forward(ctx: Any, *embeddings: Tensor) -> tuple[Tensor, ...]:
        lengths = [torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min_(1e-12) for x in embeddings]
        units = [x / length for x, length in zip(embeddings, lengths, strict=True)]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*units, *lengths)
        return tuple(units)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        n, saved = len(gradients), ctx.saved_tensors
        return tuple(
            None if g is None else torch.addcmul(g, y, (g * y).sum(-1, keepdim=True), value=-1).div_(length)
            for g, y, length in zip(gradients, saved[:n], saved[n:], strict=True)
        )


Tile = tuple[slice, slice]  # of rows and of columns


def _tiles(N: int, K: int, device: str, symmetric: bool, kept: bool) -> list[Tile]:
    """Ranges that cover the N x K matrix, the largest first; if it is symmetric and not kept, its upper half."""
    elements = TILE_ELEMENTS.get(device, TILE_ELEMENTS["cuda"])
    if symmetric and not kept:
        width = height = min(N, math.isqrt(elements))
    else:
        height = min(N, math.isqrt(elements) // 2)
        width = min(K, elements // height)
    return [
        (slice(top, min(top + height, N)), slice(left, min(left + width, K)))
        for top in range(0, N, height)
        for left in range(top if symmetric and not kept else 0, K, width)
    ]


@dataclass(slots=True)
class _Plan:
    tau_alpha: float
    tau_beta: float
    own: int | None
    both_directions: bool
    symmetric: bool
    vector: bool
    kept: bool  # exp((s - 1) / tau_alpha) is kept for backward
    tiles: list[Tile]

    def own_keys(self, tile: Tensor, rows: slice, keys: slice) -> tuple[Tensor, slice]:
        """The entries of a tile that belong to anchors' own keys, and these anchors."""
        offset = rows.start + (self.own or 0) - keys.start
        entries = tile.diagonal(offset)
        first = rows.start + max(-offset, 0)
        return entries, slice(first, first + entries.shape[0])


class _TiledLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, plan: _Plan) -> tuple[Tensor, ...]:
        with true_precision(a.device):
            alpha, beta, own, vector, kept = _reduce(a, b, plan)
        ctx.plan = plan
        # A dictionary is not needed again if its vector component is there: it may take in new keys before backward.
        again = plan.own is not None or not plan.vector or ctx.needs_input_grad[1]
        ctx.save_for_backward(a, b if again else None, alpha, vector, kept)
        ctx.mark_non_differentiable(beta, vector)
        ctx.set_materialize_grads(False)
        return alpha, beta, own, vector

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, of_lse: Tensor | None, _: None, of_own: Tensor | None, __: None) -> tuple[Any, ...]:
        a, b, lse, vector, kept = ctx.saved_tensors
        plan, (wants_a, wants_b, _) = ctx.plan, ctx.needs_input_grad
        of_lse = torch.zeros_like(lse) if of_lse is None else of_lse
        da = None
        with true_precision(a.device):
            if plan.vector and wants_a:
                da, wants_a = vector * (of_lse[0] / plan.tau_alpha)[:, None], False
                if of_own is not None:
                    da.addcmul_(b[plan.own : plan.own + len(a)], of_own[:, None])
            if wants_a or wants_b:
                made, db = _gradient(a, b, plan, lse, of_lse, of_own, kept, wants_a, wants_b)
                return made if da is None else da, db, None
        return da, None, None


def _fixed_shift(tau: float, dtype: torch.dtype) -> bool:
    """Whether exp((s - 1) / tau), s in [-1, 1], stays well within the normal numbers: no maximum need be sought."""
    return 2 / tau < -0.9 * math.log(torch.finfo(dtype).tiny)


def _product(scaled: Tensor, b: Tensor, rows: slice, keys: slice, plan: _Plan, out: Tensor, own: Tensor) -> Tensor:
    """The tile BITS (s_ij - 1) / tau_alpha, -inf where the key is the anchor's own; `scaled` is BITS a / tau_alpha.

    `own` (N,) receives BITS s_ij / tau_alpha of the latter.
    """
    tile = torch.mm(scaled[rows], b[keys].T, out=_shaped(out, rows, keys))
    if plan.own is not None:
        entries, anchors = plan.own_keys(tile, rows, keys)
        own[anchors] = entries
        entries.fill_(-math.inf)
    return tile.sub_(BITS / plan.tau_alpha)


class _Sums:
    """Log-sum-exp at one temperature, of tiles BITS (s - 1) / tau_alpha that come one after another."""

    def __init__(self, a: Tensor, plan: _Plan, tau: float) -> None:
        self.tau, self.factor, self.fixed = tau, plan.tau_alpha / tau, _fixed_shift(tau, a.dtype)
        # Of a symmetric matrix only the upper half is walked over: its columns are rows of the lower half.
        self.sums = a.new_full((1 + plan.both_directions, a.shape[0]), 0.0 if self.fixed else -math.inf)
        self.rows, self.columns = self.sums[0], self.sums[-1]
        self.vector: Tensor | None = None

    def add(self, tile: Tensor, rows: slice, keys: slice, columns: bool, out: Tensor) -> Tensor:
        """Take the tile in; `out`, which may be the tile itself, receives its exponentials if the shift is fixed."""
        if not self.fixed:
            return self._add_with_maximum(tile, rows, keys, columns)
        exponentials = (torch.mul(tile, self.factor, out=out) if self.factor != 1 else tile).exp2_()
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
                self.vector.div_(self.rows[:, None])
            self.sums.log_()
        return self.sums.add_(1 / self.tau)


def _reduce(a: Tensor, b: Tensor, plan: _Plan) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Log-sum-exp at tau_alpha and at tau_beta, own similarities, the vector component, the kept exponentials."""
    none = a.new_empty(0)
    if fused.takes(a, plan):
        return *fused.reduce(a, b, plan), none
    own = none if plan.own is None else a.new_empty(a.shape[0])
    if math.isinf(plan.tau_alpha):  # every key weighs the same
        if plan.own is not None:
            own = (a * b[plan.own : plan.own + len(a)]).sum(-1)
        return _equal_keys(a, b, plan), _equal_keys(a, b, plan), own, none, none
    alpha = _Sums(a, plan, plan.tau_alpha)
    if plan.vector:
        alpha.collect_vector(a, b)
    two = plan.tau_beta != plan.tau_alpha and not math.isinf(plan.tau_beta)
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
    detached = _equal_keys(a, b, plan) if math.isinf(plan.tau_beta) else lse.clone()
    return lse, detached, own.mul_(plan.tau_alpha / BITS), vector, kept


def _equal_keys(a: Tensor, b: Tensor, plan: _Plan) -> Tensor:
    """Log-sum-exp at an infinite temperature, the logarithm of the number of negatives."""
    negatives = len(b) - (plan.own is not None)
    return a.new_full((1 + plan.both_directions, a.shape[0]), math.log(negatives) if negatives else -math.inf)


def _shaped(buffer: Tensor, rows: slice, keys: slice) -> Tensor:
    """The beginning of a buffer, as a tile."""
    height, width = rows.stop - rows.start, keys.stop - keys.start
    return buffer[: height * width].view(height, width)


def _buffer(a: Tensor, plan: _Plan) -> Tensor:
    rows, keys = plan.tiles[0]
    return a.new_empty((rows.stop - rows.start) * (keys.stop - keys.start))


def _gradient(
    a: Tensor,
    b: Tensor,
    plan: _Plan,
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
    tau, fixed = plan.tau_alpha, _fixed_shift(plan.tau_alpha, a.dtype)
    da = torch.zeros_like(a) if wants_a else None
    # Both arguments of a symmetric product are the same tensor: its whole gradient goes to the first.
    db = da if plan.symmetric else torch.zeros_like(b) if wants_b else None
    if plan.symmetric and of_own is not None:
        of_own = 2 * of_own  # an anchor's own key is the anchor itself: s_ii = a_i . a_i
    columns = plan.both_directions or plan.symmetric
    # p^_ij = exp((s_ij - 1) / tau) / exp(lse_i - 1 / tau); without a fixed shift the two may not be taken apart.
    shift, weight = lse - 1 / tau, of_lse / tau
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


@contextmanager
def true_precision(device: torch.device) -> Iterator[None]:
    """Products in true float32: no autocast, no TF32 or bfloat16 behind float32's back.

    At tau 0.01 a similarity that is off by 1e-3 changes its exponential by a tenth.
    """
    if torch.is_autocast_enabled(device.type):
        with torch.autocast(device.type, enabled=False), true_precision(device):
            yield
        return
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):  # torch < 2.9
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    switch: Any = torch.backends.cuda.matmul if device.type == "cuda" else torch.backends.mkldnn.matmul  # pyright: ignore
    before = switch.fp32_precision
    switch.fp32_precision = "ieee"
    try:
        yield
    finally:
        switch.fp32_precision = before
