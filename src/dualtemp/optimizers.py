"""Optimizers by name. To add one, add an entry to OPTIMIZERS: the choices of `--optimizer` are its keys.

Needs no torch until one is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    Build = Callable[[list[Tensor], float, float], Optimizer]  # (parameters, momentum, weight decay)


def _sgd(parameters: list[Tensor], momentum: float, weight_decay: float) -> Optimizer:
    """As in the paper: weight decay on everything."""
    from torch.optim import SGD

    return SGD(parameters, lr=0.0, momentum=momentum, weight_decay=weight_decay)


def _adamw(parameters: list[Tensor], momentum: float, weight_decay: float) -> Optimizer:
    from torch.optim import AdamW

    return AdamW(_groups(parameters, weight_decay), lr=0.0)


def _lars(parameters: list[Tensor], momentum: float, weight_decay: float) -> Optimizer:
    from dualtemp.lars import LARS

    return LARS(_groups(parameters, weight_decay), momentum=momentum)


def _muon(parameters: list[Tensor], momentum: float, weight_decay: float) -> Optimizer:
    from dualtemp.muon import Muon

    return Muon(_groups(parameters, weight_decay), momentum=momentum)


OPTIMIZERS: dict[str, Build] = {"sgd": _sgd, "adamw": _adamw, "lars": _lars, "muon": _muon}


def build_optimizer(
    name: str,
    module: nn.Module,
    momentum: float,
    weight_decay: float,
    rates: Mapping[Tensor, float] = MappingProxyType({}),
) -> Optimizer:
    """Build an optimizer of a module's trainable parameters; `set_lr` sets its rate before every step.

    rates: shares of that rate by parameter, where they are not 1.
    """
    built = OPTIMIZERS[name]([p for p in module.parameters() if p.requires_grad], momentum, weight_decay)
    if rates:
        built.param_groups[:] = [part for group in built.param_groups for part in _by_rate(group, rates)]
    return built


def restore_optimizer(optimizer: Optimizer, saved: dict[str, Any]) -> bool:
    """Load an optimizer's saved state of each parameter; settings stay those that `optimizer` was built with.

    Returns False, and changes nothing, if `saved` groups the parameters differently.
    """
    groups = optimizer.param_groups
    if [len(group["params"]) for group in groups] != [len(group["params"]) for group in saved["param_groups"]]:
        return False
    own = [{name: value for name, value in group.items() if name != "params"} for group in groups]
    optimizer.load_state_dict(saved)
    for group, options in zip(optimizer.param_groups, own, strict=True):
        group.update(options)
    return True


def set_lr(optimizer: Optimizer, lr: float) -> None:
    """Set the learning rate of all parameters; groups with a `rate` of their own get that share of it."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("rate", 1.0)


def _by_rate(group: dict[str, Any], rates: Mapping[Tensor, float]) -> list[dict[str, Any]]:
    """Split a group by the rate of its parameters, in the order in which the rates first occur."""
    found: dict[float, list[Tensor]] = {}
    for p in group["params"]:
        found.setdefault(rates.get(p, 1.0), []).append(p)
    return [{**group, "params": parameters, "rate": rate} for rate, parameters in found.items()]


def _groups(parameters: list[Tensor], weight_decay: float) -> list[dict[str, Any]]:
    """Separate weight matrices from biases and scales, which get no weight decay and no LARS or Muon scaling."""
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay, "adapt": True},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0, "adapt": False},
    ]
    return [group for group in groups if group["params"]]
