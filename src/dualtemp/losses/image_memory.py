"""Numbers that are kept per image: SogCLR's moving average, and iSogCLR's temperatures.

They are buffers, (directions, images) in float32 (float64 where that is torch's default), so that checkpoints have
them: 4 bytes an image and direction for `ImageMemory`, 12 for `ImageTemperatures`. On many processes with `gather=True`
every process ends a step with the same numbers: those of all anchors are exchanged, a few bytes each. In eval mode
nothing is written.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dualtemp import distributed
from dualtemp.losses.full_precision import at_least_float32, without_half
from dualtemp.losses.odds import Odds, OwnTemperatures, Weighed

UNSEEN = torch.finfo(torch.float32).min  # log u of an image not seen yet; finite, as is everything in a checkpoint


class ImageMemory(nn.Module):
    """Weight "memory" (SogCLR): w_i = G_i / u_i, where u_i <- (1 - gamma) u_i + gamma G_i is the image's average.

    G_i = mean_j exp((s_ij - s_i+) / tau) = e^d / M says how hard the anchor is among this batch's M negatives, u_i how
    hard it was in all its steps: an anchor that meets unusually easy negatives counts less. The first step of an image
    starts its average (w = 1), and at gamma = 1 all weights are 1. The value is log u_i, SogCLR's objective over tau.
    log u is kept, so that all is finite at any temperature; w is at most 1 / gamma.

    Args:
        images: of the data set; `index` counts from 0 to images - 1.
        gamma: share of the new step in the average, above 0 and at most 1; default 0.9.
        directions: 2 where both views are anchors (`both_directions`, `nt_xent`), else 1. Default 2.

    Without gather=True each process remembers its own images. DistributedDataParallel would replace that memory by rank
    0's before every forward: keep the loss outside of what it wraps, or give it broadcast_buffers=False.
    """

    has_tau_beta = False
    log_u: Tensor

    def __init__(self, images: int, gamma: float = 0.9, directions: int = 2) -> None:
        super().__init__()
        _require_count(images)
        if directions not in (1, 2):
            raise ValueError(f"directions must be 1 or 2, got {directions}")
        self.gamma, self.images = gamma, images
        self.register_buffer("log_u", torch.full((directions, images), UNSEEN, dtype=at_least_float32()))

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; gamma is checked."""
        if name == "gamma" and not 0 < value <= 1:
            raise ValueError(f"gamma must be a number above 0 and at most 1, got {value}")
        super().__setattr__(name, value)

    def temperatures(self, index: Tensor, directions: int, tau_alpha: float) -> OwnTemperatures | None:
        """None: tau_alpha for all anchors."""
        self._require_directions(directions)

    @torch.no_grad()
    def weigh(self, odds: Odds, index: Tensor | None = None, tau_alpha: float = 1.0, gather: bool = False) -> Weighed:
        """Weights G_i / u_i and values log u_i of anchors (A, N), whose averages are moved unless in eval mode."""
        assert index is not None
        log_w, log_u = self._averaged(odds, index)
        self._write(index, gather, log_u=log_u)
        return Weighed(log_w.exp(), log_u, lambda: log_w)

    def extra_repr(self) -> str:
        """Settings and size."""
        return f"images={self.images}, gamma={self.gamma}, directions={len(self.log_u)}"

    def _averaged(self, odds: Odds, index: Tensor) -> tuple[Tensor, Tensor]:
        """log(G / u) and log u of this step's anchors, (A, N)."""
        log_g = odds.d.detach() - odds.log_negatives
        before = self.log_u[: len(log_g)].index_select(1, index).to(log_g.dtype)
        log_u = log_g
        if self.gamma < 1:
            moved = torch.logaddexp(before + math.log1p(-self.gamma), log_g + math.log(self.gamma))
            log_u = torch.where(before == UNSEEN, log_g, moved)
        return log_g - log_u, log_u

    def _write(self, index: Tensor, gather: bool, **values: Tensor) -> None:
        """Write values (A, N) of these images into the buffers with these names, the same on all processes."""
        if not self.training:
            return
        if not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:  # backward is running
            raise RuntimeError(
                "weights kept per image cannot be recomputed in backward: leave the loss outside the checkpointed part"
            )
        directions = next(iter(values.values())).shape[0]
        buffers = [getattr(self, name)[:directions] for name in values]
        new = torch.stack(list(values.values())).to(buffers[0].dtype)  # (buffers, A, N)
        before = torch.stack([buffer.index_select(1, index) for buffer in buffers])
        new = torch.where(new.isfinite().all(0), new, before)  # values spoiled by an overflow are not stored
        if gather and distributed.world_size() > 1:
            index = distributed.gather(index, equal=True)
            new = distributed.gather(new.movedim(-1, 0), equal=True).movedim(0, -1)
        for buffer, numbers in zip(buffers, new, strict=True):
            # An image may be shown twice in a step, as a replacement for an unreadable one. The larger value is kept,
            # since on an accelerator it is a matter of chance which one is written last.
            buffer.scatter_reduce_(1, index.expand(directions, -1), numbers, "amax", include_self=False)

    def _require_directions(self, directions: int) -> None:
        if directions > len(self.log_u):
            raise ValueError(
                f"both views are anchors, but {type(self).__name__} was made for one: give it directions=2"
            )

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move to another device or to float64, but never to half precision: log u would lose its digits."""
        return super()._apply(without_half(fn), recurse)


class ImageTemperatures(ImageMemory):
    """Weight "per_image" (iSogCLR): each image has a temperature tau_i of its own, which its steps move.

    The robust objective of an image is min over tau_i of tau_i log G_i(tau_i) + tau_i rho, here divided by tau_alpha,
    which is also where tau_i starts: as long as no tau_i has moved, gradients are those of `ImageMemory`. So w_i is
    tau_i / tau_alpha G_i / u_i, the vector is at tau_i, and the value is tau_i / tau_alpha (log u_i + rho).
    After the loss is computed, tau_i moves against log u_i + rho - G_i / u_i sum_j p^_ij (s_ij - s_i+) / tau_i, the
    objective's derivative, with momentum, and stays within bounds.

    Args:
        images: of the data set; `index` counts from 0 to images - 1.
        gamma: share of the new step in the average u_i, above 0 and at most 1; default 0.9.
        directions: 2 where both views are anchors (`both_directions`, `nt_xent`), else 1. Default 2.
        rho: how far from uniform the weights p^ of an image's negatives may be (a divergence in nats); default 0.3.
            The larger, the lower the temperatures.
        tau_min: lowest temperature, default 0.05.
        tau_max: highest temperature, default 0.7.
        tau_lr: learning rate of the temperatures; default 0.01.
        tau_momentum: share of the earlier derivatives in a temperature's move, from 0 to below 1; default 0.1.
    """

    tau: Tensor
    derivative: Tensor

    def __init__(
        self,
        images: int,
        gamma: float = 0.9,
        directions: int = 2,
        *,
        rho: float = 0.3,
        tau_min: float = 0.05,
        tau_max: float = 0.7,
        tau_lr: float = 0.01,
        tau_momentum: float = 0.1,
    ) -> None:
        if not 0 < tau_min <= tau_max < math.inf:
            raise ValueError(f"0 < tau_min <= tau_max < inf is needed, got {tau_min} and {tau_max}")
        if not (0 <= rho < math.inf and 0 <= tau_lr < math.inf and 0 <= tau_momentum < 1):
            raise ValueError(
                f"rho >= 0, tau_lr >= 0 and 0 <= tau_momentum < 1 are needed, got {rho}, {tau_lr} and {tau_momentum}"
            )
        super().__init__(images, gamma, directions)
        self.rho, self.tau_min, self.tau_max = rho, tau_min, tau_max
        self.tau_lr, self.tau_momentum = tau_lr, tau_momentum
        for name in ("tau", "derivative"):
            self.register_buffer(name, torch.zeros(directions, images, dtype=at_least_float32()))

    def temperatures(self, index: Tensor, directions: int, tau_alpha: float) -> OwnTemperatures:
        """tau_i of each anchor, (A, N); tau_alpha for an image not seen yet."""
        self._require_directions(directions)
        if not self.tau_min <= tau_alpha <= self.tau_max:
            raise ValueError(
                f"tau_alpha, where the temperatures of images start, must be from {self.tau_min} to {self.tau_max}, "
                f"got {tau_alpha}"
            )
        tau, log_u = (buffer[:directions].index_select(1, index) for buffer in (self.tau, self.log_u))
        return OwnTemperatures(torch.where(log_u == UNSEEN, tau_alpha, tau), self.tau_min)

    @torch.no_grad()
    def weigh(self, odds: Odds, index: Tensor | None = None, tau_alpha: float = 1.0, gather: bool = False) -> Weighed:
        """Weights and values of anchors (A, N); averages and temperatures are moved unless in eval mode."""
        assert index is not None
        assert odds.tau is not None
        assert odds.slope is not None
        log_w, log_u = self._averaged(odds, index)
        tau = odds.tau.to(log_u.dtype)
        before = self.derivative[: len(log_u)].index_select(1, index).to(log_u.dtype)
        now = log_u + self.rho - log_w.exp() * odds.slope
        derivative = self.tau_momentum * before + (1 - self.tau_momentum) * now
        moved = (tau - self.tau_lr * derivative).clamp(self.tau_min, self.tau_max)
        self._write(index, gather, log_u=log_u, tau=moved, derivative=derivative)
        share = tau / tau_alpha
        return Weighed(share * log_w.exp(), share * (log_u + self.rho), lambda: share.log() + log_w)

    def extra_repr(self) -> str:
        """Settings and size."""
        names = ("rho", "tau_min", "tau_max", "tau_lr", "tau_momentum")
        return ", ".join((super().extra_repr(), *(f"{name}={getattr(self, name)}" for name in names)))


def _require_count(images: int) -> None:
    if isinstance(images, bool) or not isinstance(images, int) or images < 1:
        raise ValueError(f"images must be the number of images of the data set, got {images!r}")


def remembered_images(state: Mapping[str, Tensor]) -> int:
    """The number of images for which a module's state dict keeps values; 0 if it has no memory."""
    return next((numbers.shape[-1] for name, numbers in state.items() if name.rpartition(".")[2] == "log_u"), 0)
