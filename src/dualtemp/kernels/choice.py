"""Whether a log-sum-exp is computed by the fused kernels or by plain tiles, and the two calls that the losses make.

The kernels are used on a CUDA device that has passed `dualtemp doctor --gpu`, whose mark is kept in the cache. The
environment variable DUALTEMP_TRITON=1 uses them on every CUDA device, and on the CPU where TRITON_INTERPRET=1 has
Triton interpreted, which is slow and exact; DUALTEMP_TRITON=0 never uses them.
"""

import contextlib
import functools
import json
import math
import os
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from dualtemp.atomic_write import whole_file
from dualtemp.cache_folder import cache_folder
from dualtemp.errors import UserError
from dualtemp.temperatures import MOST_TAU

SWITCH = "DUALTEMP_TRITON"
VERSION = 1  # of the kernels; raised when they change, so that each device has to pass the self-test again
CPU = torch.device("cpu")  # compared with, because reading a device's type takes six times as long
WIDEST = 512  # above, embeddings are left to plain tiles: there the products take all the time


class Plan(Protocol):
    """What is to be computed of anchors `a` (N, D) and keys `b` (K, D); see `dualtemp.losses.similarity`."""

    @property
    def tau_alpha(self) -> float | Tensor:
        """First temperature; a tensor if it is on the device, which is not waited for."""
        ...

    @property
    def tau_beta(self) -> float | Tensor:
        """Second temperature."""
        ...

    @property
    def own(self) -> int | None:
        """Key i + own belongs to anchor i; None: there are no such keys."""
        ...

    @property
    def both_directions(self) -> bool:
        """Whether keys are anchors too."""
        ...

    @property
    def symmetric(self) -> bool:
        """Whether `b` is `a`, whose whole gradient goes to the first."""
        ...

    @property
    def vector(self) -> bool:
        """Whether the vector component is wanted."""
        ...


def available(device: torch.device) -> bool:
    """Whether the fused kernels are used on this device."""
    switch = os.environ.get(SWITCH, "")
    if device == CPU:
        return switch == "1" and os.environ.get("TRITON_INTERPRET") == "1"
    if switch == "0" or device.type != "cuda":
        return False
    if switch == "1":
        _require_triton()
        return True
    return _passed(device, _marks())


def takes(a: Tensor, plan: Plan) -> bool:
    """Whether the fused kernels compute this reduction."""
    return takes_at(a, plan.tau_alpha, excludes=getattr(plan, "excluded", None) is not None)


def takes_at(a: Tensor, tau_alpha: float | Tensor, *, excludes: bool) -> bool:
    """Whether they compute a reduction like this: float32, finite tau_alpha, no keys excluded but own ones."""
    plain = a.dtype == torch.float32 and a.shape[1] <= WIDEST and not excludes
    return plain and not _infinite(tau_alpha) and available(a.device)


def reduce(a: Tensor, b: Tensor, plan: Plan) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-sum-exp at both temperatures, each (1, N), or (2, N) in both directions; own similarities; the vector."""
    from dualtemp.kernels import log_sum_exp as kernel

    tied = plan.tau_beta is plan.tau_alpha or _equal(plan.tau_alpha, plan.tau_beta)
    second = None if tied or _infinite(plan.tau_beta) else plan.tau_beta
    found = [kernel.reduce(a, b, plan.tau_alpha, second, own=plan.own)]
    if plan.both_directions:
        found.append(kernel.reduce(b, a, plan.tau_alpha, second, own=_opposite(plan.own)))
    alpha, beta = (torch.stack(parts) for parts in zip(*found, strict=True))
    if tied:
        beta = alpha.clone()
    elif _infinite(plan.tau_beta):
        negatives = len(b) - (plan.own is not None)
        beta = torch.full_like(alpha, math.log(negatives) if negatives else -math.inf)
    own = a.new_empty(0) if plan.own is None else (a * b[plan.own : plan.own + len(a)]).sum(-1)
    vector = a.new_empty(0)
    if plan.vector:
        rows = kernel.Anchors(alpha[0], torch.ones_like(alpha[0]))
        vector = kernel.weigh(a, b, plan.tau_alpha, own=plan.own, rows=rows)
    return alpha, beta, own, vector


def gradient(
    a: Tensor, b: Tensor, plan: Plan, lse: Tensor, of_lse: Tensor, of_own: Tensor | None, wants_a: bool, wants_b: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Gradient for a and b, given that for log-sum-exp, (1, N) or (2, N), and for own similarities (N,)."""
    from dualtemp.kernels import log_sum_exp as kernel

    first, last = (kernel.Anchors(lse[i], of_lse[i] / plan.tau_alpha) for i in (0, -1))
    as_keys = last if plan.both_directions or plan.symmetric else None
    da = db = None
    if wants_a:
        da = kernel.weigh(a, b, plan.tau_alpha, own=plan.own, rows=first, columns=as_keys)
        if of_own is not None:
            # An anchor's own key in a symmetric product is the anchor itself: s_ii = a_i . a_i.
            da.addcmul_(b[plan.own : _end(plan, a)], of_own[:, None], value=2 if plan.symmetric else 1)
    if wants_b and not plan.symmetric:
        as_rows = last if plan.both_directions else None
        db = kernel.weigh(b, a, plan.tau_alpha, own=_opposite(plan.own), rows=as_rows, columns=first)
        if of_own is not None:
            db[plan.own : _end(plan, a)].addcmul_(a, of_own[:, None])
    return da, db


def remember_pass(device: torch.device) -> None:
    """Note that this device has passed the self-test: its losses are computed by the fused kernels from now on."""
    marks = {**_marks(), _name(device): {"passed": datetime.now(UTC).isoformat(timespec="seconds")}}
    path = marks_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(json.dumps(marks, indent=1).encode())
    _read_marks.cache_clear()


def marks_file() -> Path:
    """Where passed self-tests are noted."""
    return cache_folder() / "triton.json"


def installed() -> bool:
    """Whether Triton is installed; it is not loaded."""
    return find_spec("triton") is not None


def _passed(device: torch.device, marks: dict[str, object]) -> bool:
    return bool(marks) and installed() and _name(device) in marks


def _name(device: torch.device) -> str:
    """What a pass is about: the kind of device, and the versions of what computes on it."""
    major, minor = torch.cuda.get_device_capability(device)
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "none"
    name = torch.cuda.get_device_name(device)
    return f"{name}, sm_{major}{minor}, torch {torch.__version__}, triton {triton}, kernels {VERSION}"


def _marks() -> dict[str, object]:
    try:
        return _read_marks(str(marks_file()))
    except UserError:  # no home
        return {}


@functools.cache
def _read_marks(path: str) -> dict[str, object]:
    """Read once in a process: a step must not touch the disk."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(Path(path).read_text())
        return found if isinstance(found, dict) else {}
    return {}


def _require_triton() -> None:
    if not installed():
        raise UserError(
            f"{SWITCH}=1 asks for fused kernels, and triton is not installed: pip install 'dualtemp[triton]', or "
            f"set {SWITCH}=0"
        )


def _equal(alpha: float | Tensor, beta: float | Tensor) -> bool:
    return not (isinstance(alpha, Tensor) or isinstance(beta, Tensor)) and alpha == beta


def _infinite(tau: float | Tensor) -> bool:
    """Whether every key weighs the same, to the last digit; far above, factors of the kernels would round to 0."""
    return not isinstance(tau, Tensor) and tau > MOST_TAU


def _opposite(own: int | None) -> int | None:
    return None if own is None else -own


def _end(plan: Plan, a: Tensor) -> int:
    return (plan.own or 0) + len(a)
