"""The tiled log-sum-exp as two fused kernels in Triton: no tile of the similarities ever leaves the chip.

`_reduce_rows` gives the log-sum-exp of each row at both temperatures, `_weigh_keys` the sum of keys under the weights
dL/ds_ij, which is the gradient and, with p^_ij for weights, the vector component. Columns are rows with the arguments
swapped, so nothing is added up by several programs at once: the same input gives the same bits. Products are true
float32 (no TF32). Where there are few rows, keys are divided among programs, and the parts are joined afterwards.
docs/gpu.md counts bytes and operations.
"""

import functools
import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class Blocks(NamedTuple):
    """What one program works on at a time; powers of 2, at least 16."""

    rows: int
    keys: int
    width: int  # of the embedding, in one step of the product
    warps: int


# The largest that leave registers for two or three blocks on a multiprocessor, compiled for sm_80 and sm_90.
REDUCE = Blocks(64, 64, 16, 4)
WEIGH = Blocks(64, 32, 16, 4)
WIDEST_SUM = 256  # of the sum of keys that a program holds in registers
PROGRAMS = 2  # for each multiprocessor, if keys have to be divided among programs to get there


def reduce(
    a: Tensor,
    b: Tensor,
    tau_alpha: float | Tensor,
    tau_beta: float | Tensor | None = None,
    *,
    own: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-sum-exp of the rows of the similarities of `a` (N, D) and `b` (K, D), float32, without the own keys.

    Args:
        a: anchors, (N, D).
        b: keys, (K, D).
        tau_alpha: first temperature; a number, or a tensor of one element, which is not waited for.
        tau_beta: second temperature, finite; None: there is none.
        own: key i + own is not among the negatives of anchor i; None: all keys are.

    Returns:
        Log-sum-exp at tau_alpha (N,), and at tau_beta (N,) or empty; -inf where there are no negatives.
    """
    (N, D), K, blocks = a.shape, len(b), REDUCE
    a, b = _rows(a), _rows(b)
    parts, span = _parts(N, K, blocks, a.device)
    two = tau_beta is not None
    lse, second = a.new_empty(parts, N), a.new_empty((parts, N) if two else 0)
    scale, learned = _per_temperature(1 / tau_alpha, a)
    ratio, _ = _per_temperature(tau_alpha / tau_beta if two else 1.0, a, learned)
    launch: Any = _reduce_rows
    launch[(triton.cdiv(N, blocks.rows), parts)](
        *(a, b, lse, second, scale, ratio, N, K, a.stride(0), b.stride(0), own or 0, span),
        HAS_OWN=own is not None,
        TWO=two,
        LEARNED=learned,
        D=D,
        ROWS=blocks.rows,
        KEYS=blocks.keys,
        WIDTH=blocks.width,
        num_warps=blocks.warps,
    )
    if parts == 1:
        return lse[0], second[0] if two else second
    return torch.logsumexp(lse, 0), torch.logsumexp(second, 0) if two else second


class Anchors(NamedTuple):
    """Log-sum-exp (N,) of anchors, and the weight (N,) of each in the sum of keys."""

    lse: Tensor
    weight: Tensor


def weigh(
    a: Tensor,
    b: Tensor,
    tau: float | Tensor,
    *,
    own: int | None = None,
    rows: Anchors | None = None,
    columns: Anchors | None = None,
) -> Tensor:
    """Sum of the keys `b` (K, D) for each row of `a` (N, D): (N, D), under the weights

        rows.weight_i exp(s_ij / tau - rows.lse_i) + columns.weight_j exp(s_ij / tau - columns.lse_j)

    without own keys, key i + own of row i. `rows` says that `a` are anchors, `columns` that `b` are; one or both.
    """
    (N, D), K = a.shape, len(b)
    out_width = min(WIDEST_SUM, max(16, triton.next_power_of_2(D)))
    blocks = WEIGH if out_width <= 128 else WEIGH._replace(warps=2 * WEIGH.warps)
    a, b = _rows(a), _rows(b)
    parts, span = _parts(N, K, blocks, a.device)
    out = a.new_empty(parts, N, D)
    scale, learned = _per_temperature(1 / tau, a)
    none = Anchors(out, out)  # never read
    launch: Any = _weigh_keys
    launch[(triton.cdiv(N, blocks.rows), parts, triton.cdiv(D, out_width))](
        *(a, b, out, *(x.contiguous() for x in rows or none), *(x.contiguous() for x in columns or none)),
        *(scale, N, K, a.stride(0), b.stride(0), own or 0, span),
        HAS_OWN=own is not None,
        BY_ROW=rows is not None,
        BY_COLUMN=columns is not None,
        LEARNED=learned,
        D=D,
        ROWS=blocks.rows,
        KEYS=blocks.keys,
        WIDTH=blocks.width,
        OUT=out_width,
        num_warps=blocks.warps,
    )
    return out[0] if parts == 1 else out.sum(0)


@triton.jit
def _tile(a, b, i, j, N, K, stride_a, stride_b, scale, D: tl.constexpr, WIDTH: tl.constexpr):
    """s_ij / tau in base 2, of rows i and keys j."""
    s = tl.zeros((i.shape[0], j.shape[0]), tl.float32)
    for start in range(0, D, WIDTH):
        d = start + tl.arange(0, WIDTH)
        x = tl.load(a + i[:, None] * stride_a + d[None, :], mask=(i[:, None] < N) & (d[None, :] < D), other=0.0)
        y = tl.load(b + j[None, :] * stride_b + d[:, None], mask=(j[None, :] < K) & (d[:, None] < D), other=0.0)
        s = tl.dot(x, y, s, input_precision="ieee")
    return s * scale


@triton.jit
def _reduce_rows(
    a,
    b,
    lse_alpha,
    lse_beta,
    scale,
    ratio,
    N,
    K,
    stride_a,
    stride_b,
    own,
    span,
    HAS_OWN: tl.constexpr,
    TWO: tl.constexpr,
    LEARNED: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    if LEARNED:
        scale = tl.load(scale)
        ratio = tl.load(ratio)
    bits = 1.4426950408889634
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(1)
    first = part * span
    last = tl.minimum(first + span, K)
    top = tl.full((ROWS,), float("-inf"), tl.float32)  # so far, of the row
    total = tl.zeros((ROWS,), tl.float32)  # of 2 ^ (t - top)
    second = tl.zeros((ROWS,), tl.float32)  # the same at tau_beta, whose maximum stands at the same key
    for start in range(first, last, KEYS):
        j = start + tl.arange(0, KEYS).to(tl.int64)
        t = _tile(a, b, i, j, N, last, stride_a, stride_b, scale * bits, D, WIDTH)
        negative = j[None, :] < last
        if HAS_OWN:
            negative = negative & (j[None, :] != i[:, None] + own)
        t = tl.where(negative, t, float("-inf"))
        now = tl.maximum(top, tl.max(t, 1))
        base = tl.where(now == float("-inf"), 0.0, now)  # no negative yet
        t = t - base[:, None]
        total = total * tl.exp2(top - base) + tl.sum(tl.exp2(t), 1)
        if TWO:
            second = second * tl.exp2((top - base) * ratio) + tl.sum(tl.exp2(t * ratio), 1)
        top = now
    out = part.to(tl.int64) * N + i
    tl.store(lse_alpha + out, (top + tl.log2(total)) / bits, mask=i < N)
    if TWO:
        tl.store(lse_beta + out, (top * ratio + tl.log2(second)) / bits, mask=i < N)


@triton.jit
def _weigh_keys(
    a,
    b,
    result,
    row_lse,
    row_weight,
    column_lse,
    column_weight,
    scale,
    N,
    K,
    stride_a,
    stride_b,
    own,
    span,
    HAS_OWN: tl.constexpr,
    BY_ROW: tl.constexpr,
    BY_COLUMN: tl.constexpr,
    LEARNED: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDTH: tl.constexpr,
    OUT: tl.constexpr,
):
    if LEARNED:
        scale = tl.load(scale)
    bits = 1.4426950408889634
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(1)
    e = tl.program_id(2) * OUT + tl.arange(0, OUT)
    first = part * span
    last = tl.minimum(first + span, K)
    total = tl.zeros((ROWS, OUT), tl.float32)
    if BY_ROW:
        of_row = tl.load(row_weight + i, mask=i < N, other=0.0)
        base_row = tl.load(row_lse + i, mask=i < N, other=0.0) * bits
    for start in range(first, last, KEYS):
        j = start + tl.arange(0, KEYS).to(tl.int64)
        t = _tile(a, b, i, j, N, last, stride_a, stride_b, scale * bits, D, WIDTH)
        weights = tl.zeros((ROWS, KEYS), tl.float32)
        if BY_ROW:
            weights += of_row[:, None] * tl.exp2(t - base_row[:, None])  # pyright: ignore
        if BY_COLUMN:
            of_column = tl.load(column_weight + j, mask=j < last, other=0.0)
            base_column = tl.load(column_lse + j, mask=j < last, other=0.0) * bits
            weights += of_column[None, :] * tl.exp2(t - base_column[None, :])
        # Not a product with 0: the similarity of an own key may be too large for the exponential.
        negative = j[None, :] < last
        if HAS_OWN:
            negative = negative & (j[None, :] != i[:, None] + own)
        weights = tl.where(negative, weights, 0.0)
        keys = tl.load(b + j[:, None] * stride_b + e[None, :], mask=(j[:, None] < last) & (e[None, :] < D), other=0.0)
        total = tl.dot(weights, keys, total, input_precision="ieee")
    row = part.to(tl.int64) * N + i
    tl.store(result + row[:, None] * D + e[None, :], total, mask=(i[:, None] < N) & (e[None, :] < D))


def _rows(x: Tensor) -> Tensor:
    """The matrix with its rows contiguous; they may lie apart, as those of half a gathered matrix do."""
    x = x.detach()
    return x if x.stride(1) == 1 else x.contiguous()


def _per_temperature(value: float | Tensor, like: Tensor, learned: bool | None = None) -> tuple[float | Tensor, bool]:
    """A factor as the kernels take it: a number, or, from a temperature that is a tensor, one that stays on the device.

    `learned` says that another factor of the same call is a tensor.
    """
    if isinstance(value, Tensor):
        return value.detach().to(like).reshape(1), True
    return (like.new_full((1,), value), True) if learned else (value, False)


def _parts(N: int, K: int, blocks: Blocks, device: torch.device) -> tuple[int, int]:
    """Into how many parts keys are divided, and how many keys are in each: a multiple of a block."""
    key_blocks = max(1, math.ceil(K / blocks.keys))
    wanted = max(1, min(key_blocks, PROGRAMS * _multiprocessors(device) // math.ceil(N / blocks.rows)))
    span = math.ceil(key_blocks / wanted)
    return math.ceil(key_blocks / span), span * blocks.keys


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
