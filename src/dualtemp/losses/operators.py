"""The tiled walks as operators of PyTorch: what torch.compile and torch.export see as one node, with its gradient.

Run as they stand, the losses do not come here: an operator's way through the dispatcher costs as much as a small batch.
A temperature that is a tensor is read inside the operator, when the graph runs; its tiles are not kept for backward.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dualtemp.kernels import choice as fused
from dualtemp.losses import labeled_tiles
from dualtemp.losses.exclusion import Exclusion
from dualtemp.losses.product_plan import Plan, Walk, fixed_shift, make_plan
from dualtemp.losses.similarity import Reduced, gradient, reduce
from dualtemp.losses.temperature import Temperature, require_temperature
from dualtemp.losses.unit_vectors import true_precision

NO_OWN = -1
TIED = math.nan  # as a second temperature: the same as the first


def log_sum_exp_operator(
    a: Tensor,
    b: Tensor,
    walk: Walk,
    tau_alpha: Temperature,
    tau_beta: Temperature | None,
    own: int | None,
    both_directions: bool,
    vector: bool,
    excluded: Exclusion | None,
) -> Reduced:
    """`log_sum_exp` while a graph is made of it."""
    tensor, number, beta = _temperatures(tau_alpha, tau_beta)
    kept = walk.may_keep and tensor is None and fixed_shift(number, a.dtype)
    parts = (excluded or Exclusion()).tensors()
    flags = (both_directions, vector or walk.anchors_alone, walk.symmetric, kept)
    numbers = (number, beta, NO_OWN if own is None else own)
    alpha, detached, positive, mean, _ = tiled_log_sum_exp(a, b, tensor, *numbers, *flags, *parts)
    return Reduced(alpha, detached.detach(), positive, mean.detach())


def labeled_losses_operator(
    a: Tensor,
    b: Tensor,
    anchor_labels: Tensor,
    key_labels: Tensor,
    tau_alpha: Temperature,
    tau_beta: Temperature | None,
    own: int | None,
    excluded: Exclusion | None,
) -> tuple[Tensor, Tensor]:
    """`labeled_losses` while a graph is made of it."""
    tensor, number, beta = _temperatures(tau_alpha, tau_beta)
    parts = (excluded or Exclusion()).tensors()
    numbers = (number, beta, NO_OWN if own is None else own)
    loss, counted, *_ = tiled_labeled_losses(a, b, anchor_labels, key_labels, tensor, *numbers, *parts)
    return loss, counted


def _temperatures(tau_alpha: Temperature, tau_beta: Temperature | None) -> tuple[Tensor | None, float, float]:
    """tau_alpha as a tensor or None, tau_alpha as a number (1 for a tensor), and tau_beta as a number."""
    beta = TIED if tau_beta is None or tau_beta is tau_alpha else float(tau_beta)
    return (tau_alpha, 1.0, beta) if isinstance(tau_alpha, Tensor) else (None, float(tau_alpha), beta)


def _settled(tensor: Tensor | None, number: float, beta: float) -> tuple[Temperature, Temperature | None]:
    """Both temperatures as `make_plan` takes them."""
    if tensor is not None:
        require_temperature(tensor, "tau")
    return number if tensor is None else tensor.detach(), None if math.isnan(beta) else beta


def _no_gradients(ids: int) -> tuple[list[None], list[None], None, None, None]:
    """The gradients of the parts of an exclusion with `ids` ids: none."""
    return [None] * ids, [None] * ids, None, None, None


def _plan(
    a: Tensor,
    b: Tensor,
    tau: Tensor | None,
    tau_alpha: float,
    tau_beta: float,
    own: int,
    both_directions: bool,
    vector: bool,
    symmetric: bool,
    kept: bool,
    excluded: Exclusion,
) -> Plan:
    alpha, beta = _settled(tau, tau_alpha, tau_beta)
    walk = Walk(symmetric, anchors_alone=vector, may_keep=kept)
    options = {"own": None if own == NO_OWN else own, "both_directions": both_directions, "vector": vector}
    return make_plan(a, b, walk, alpha, beta, excluded=excluded, **options)  # pyright: ignore


@torch.library.custom_op("dualtemp::tiled_log_sum_exp", mutates_args=())
def tiled_log_sum_exp(
    a: Tensor,
    b: Tensor,
    tau: Tensor | None,
    tau_alpha: float,
    tau_beta: float,
    own: int,
    both_directions: bool,
    vector: bool,
    symmetric: bool,
    kept: bool,
    anchor_ids: Sequence[Tensor],
    key_ids: Sequence[Tensor],
    padded_anchors: Tensor | None,
    padded_keys: Tensor | None,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Log-sum-exp at both temperatures, own similarities, the vector component, the kept exponentials."""
    excluded = Exclusion(list(anchor_ids), list(key_ids), padded_anchors, padded_keys, mask)
    flags = (both_directions, vector, symmetric, kept)
    plan = _plan(a, b, tau, tau_alpha, tau_beta, own, *flags, excluded)
    with true_precision(a.device):
        alpha, beta, *others = reduce(a, b, plan)
    # An operator's results may not be one tensor, not even an empty one.
    positive, mean, tiles = (x if x.numel() else a.new_empty(0) for x in others)
    return alpha, beta, positive, mean, tiles.reshape(-1)


@tiled_log_sum_exp.register_fake
def _(a, b, tau, tau_alpha, tau_beta, own, both_directions, vector, symmetric, kept, *excluded):
    alpha = a.new_empty(2 if both_directions else 1, a.shape[0])
    positive = a.new_empty(0 if own == NO_OWN else a.shape[0])
    anchor_ids, _, *masks = excluded
    excludes = bool(anchor_ids) or any(x is not None for x in masks)
    kept = kept and not fused.takes_at(a, tau_alpha, excludes=excludes)  # the fused kernels keep nothing
    tiles = a.new_empty(a.shape[0] * b.shape[0] if kept else 0)
    return alpha, torch.empty_like(alpha), positive, torch.empty_like(a) if vector else a.new_empty(0), tiles


@torch.library.custom_op("dualtemp::tiled_log_sum_exp_backward", mutates_args=())
def tiled_log_sum_exp_backward(
    of_alpha: Tensor,
    of_own: Tensor | None,
    alpha: Tensor,
    positive: Tensor,
    mean: Tensor,
    tiles: Tensor,
    a: Tensor,
    b: Tensor,
    tau: Tensor | None,
    tau_alpha: float,
    tau_beta: float,
    own: int,
    both_directions: bool,
    vector: bool,
    symmetric: bool,
    kept: bool,
    anchor_ids: Sequence[Tensor],
    key_ids: Sequence[Tensor],
    padded_anchors: Tensor | None,
    padded_keys: Tensor | None,
    mask: Tensor | None,
    wants: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient for a, b and tau, empty where it is not wanted."""
    excluded = Exclusion(list(anchor_ids), list(key_ids), padded_anchors, padded_keys, mask)
    flags = (both_directions, vector, symmetric, kept)
    plan = _plan(a, b, tau, tau_alpha, tau_beta, own, *flags, excluded)
    tiles = tiles.view(a.shape[0], b.shape[0]) if tiles.numel() and plan.is_one_tile(a.dtype) else tiles
    wanted = (wants[0], wants[1], wants[2])
    of_own = None if own == NO_OWN else of_own
    made = gradient(a, b, plan, alpha, mean, tiles, positive, of_alpha, of_own, wanted)
    da, db, dtau = (a.new_empty(0) if x is None else x for x in made)
    return da, db if not symmetric else torch.zeros_like(b) if wants[1] else db, dtau.to(a.dtype)


@tiled_log_sum_exp_backward.register_fake
def _(of_alpha, of_own, alpha, positive, mean, tiles, a, b, *settings):
    wants = settings[-1]
    da, db = (torch.empty_like(x) if wanted else x.new_empty(0) for x, wanted in zip((a, b), wants, strict=False))
    return da, db, a.new_empty(()) if wants[2] else a.new_empty(0)


def _keep_log_sum_exp(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    a, b, tau, *rest = inputs
    ctx.settings, (anchor_ids, key_ids, *masks) = rest[:7], rest[7:]
    ctx.ids = len(anchor_ids)
    alpha, _, positive, mean, tiles = output
    ctx.save_for_backward(a, b, tau, alpha, positive, mean, tiles, *masks, *anchor_ids, *key_ids)


def _differentiate_log_sum_exp(ctx: Any, of_alpha: Tensor, _: Any, of_own: Tensor, *__: Any) -> tuple[Any, ...]:
    a, b, tau, alpha, positive, mean, tiles, *others = ctx.saved_tensors
    masks, ids, key_ids = others[:3], others[3 : 3 + ctx.ids], others[3 + ctx.ids :]
    wants = list(ctx.needs_input_grad[:3])
    of_alpha = torch.zeros_like(alpha) if of_alpha is None else of_alpha
    da, db, dtau = tiled_log_sum_exp_backward(
        of_alpha, of_own, alpha, positive, mean, tiles, a, b, tau, *ctx.settings, ids, key_ids, *masks, wants
    )
    dtau = dtau.to(tau.dtype).to(tau.device) if wants[2] else None
    return da if wants[0] else None, db if wants[1] else None, dtau, *([None] * 7), *_no_gradients(ctx.ids)


tiled_log_sum_exp.register_autograd(_differentiate_log_sum_exp, setup_context=_keep_log_sum_exp)


@torch.library.custom_op("dualtemp::tiled_labeled_losses", mutates_args=())
def tiled_labeled_losses(
    a: Tensor,
    b: Tensor,
    labels: Tensor,
    key_labels: Tensor,
    tau: Tensor | None,
    tau_alpha: float,
    tau_beta: float,
    own: int,
    anchor_ids: Sequence[Tensor],
    key_ids: Sequence[Tensor],
    padded_anchors: Tensor | None,
    padded_keys: Tensor | None,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """L_i, whether the anchor counts, and what the gradient needs of it."""
    excluded = Exclusion(list(anchor_ids), list(key_ids), padded_anchors, padded_keys, mask)
    plan = _labeled_plan(a, b, tau, tau_alpha, tau_beta, own, excluded)
    with true_precision(a.device):
        return labeled_tiles.forward(a, b, labels, key_labels, plan)


@tiled_labeled_losses.register_fake
def _(a, b, labels, *settings):
    n = a.shape[0]
    counted, place = labels.new_empty(n, dtype=torch.bool), labels.new_empty(n, dtype=torch.long)
    return a.new_empty(n), counted, a.new_empty(6, n), place


@torch.library.custom_op("dualtemp::tiled_labeled_losses_backward", mutates_args=())
def tiled_labeled_losses_backward(
    of_loss: Tensor,
    coefficients: Tensor,
    place: Tensor,
    a: Tensor,
    b: Tensor,
    labels: Tensor,
    key_labels: Tensor,
    tau: Tensor | None,
    tau_alpha: float,
    tau_beta: float,
    own: int,
    anchor_ids: Sequence[Tensor],
    key_ids: Sequence[Tensor],
    padded_anchors: Tensor | None,
    padded_keys: Tensor | None,
    mask: Tensor | None,
    wants_b: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient for a, b (empty if it is not wanted) and tau."""
    excluded = Exclusion(list(anchor_ids), list(key_ids), padded_anchors, padded_keys, mask)
    plan = _labeled_plan(a, b, tau, tau_alpha, tau_beta, own, excluded)
    with true_precision(a.device):
        da, db = labeled_tiles.backward(a, b, labels, key_labels, coefficients, place, of_loss, plan, wants_b)
    return da, a.new_empty(0) if db is None else db, labeled_tiles.gradient_of_temperature(a, da, plan)


@tiled_labeled_losses_backward.register_fake
def _(of_loss, coefficients, place, a, b, *settings):
    return torch.empty_like(a), torch.empty_like(b) if settings[-1] else a.new_empty(0), a.new_empty(())


def _labeled_plan(
    a: Tensor, b: Tensor, tau: Tensor | None, tau_alpha: float, tau_beta: float, own: int, excluded: Exclusion
) -> labeled_tiles.Plan:
    alpha, beta = _settled(tau, tau_alpha, tau_beta)
    return labeled_tiles.make_plan(a, b, alpha, beta, None if own == NO_OWN else own, excluded)


def _keep_labeled_losses(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    a, b, labels, key_labels, tau, *rest = inputs
    ctx.settings, (anchor_ids, key_ids, *masks) = rest[:3], rest[3:]
    ctx.ids = len(anchor_ids)
    ctx.mark_non_differentiable(output[1], output[3])
    ctx.save_for_backward(a, b, labels, key_labels, tau, *output[2:], *masks, *anchor_ids, *key_ids)


def _differentiate_labeled_losses(ctx: Any, of_loss: Tensor, *_: Any) -> tuple[Any, ...]:
    a, b, labels, key_labels, tau, coefficients, place, *others = ctx.saved_tensors
    masks, ids, key_ids = others[:3], others[3 : 3 + ctx.ids], others[3 + ctx.ids :]
    wants_a, wants_b, wants_tau = (ctx.needs_input_grad[i] for i in (0, 1, 4))
    da, db, dtau = tiled_labeled_losses_backward(
        of_loss, coefficients, place, a, b, labels, key_labels, tau, *ctx.settings, ids, key_ids, *masks, wants_b
    )
    dtau = dtau.to(tau.dtype).to(tau.device) if wants_tau else None
    return da if wants_a else None, db if wants_b else None, None, None, dtau, *([None] * 3), *_no_gradients(ctx.ids)


tiled_labeled_losses.register_autograd(_differentiate_labeled_losses, setup_context=_keep_labeled_losses)


@torch.library.custom_op("dualtemp::true_product", mutates_args=())
def true_product(x: Tensor, y: Tensor) -> Tensor:
    """x^T y, (N, D) and (N, E) to (D, E), not rounded."""
    with true_precision(x.device):
        return x.T @ y


@true_product.register_fake
def _(x, y):
    return x.new_empty(x.shape[1], y.shape[1])


def _keep_factors(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate_true_product(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    x, y = ctx.saved_tensors
    wants_x, wants_y = ctx.needs_input_grad
    return true_product(y.T, gradient.T) if wants_x else None, true_product(x.T, gradient) if wants_y else None


true_product.register_autograd(_differentiate_true_product, setup_context=_keep_factors)
