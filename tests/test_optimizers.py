"""Optimizers, against independent computations."""

import math

import pytest
import torch
from torch import Tensor, nn

from dualtemp.config import settings
from dualtemp.errors import UserError
from dualtemp.optimizers import OPTIMIZERS, build_optimizer, set_lr


def module() -> nn.Module:
    torch.manual_seed(0)
    last = nn.Linear(3, 2, bias=False)
    nn.init.zeros_(last.weight)  # a norm of zero has no ratio
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), last).double()


def gradients(of: nn.Module, step: int) -> list[Tensor]:
    torch.manual_seed(100 + step)
    return [torch.randn_like(p) for p in of.parameters()]


def stepped(name: str, weight_decay: float) -> list[list[float]]:
    made = module()
    optimizer = build_optimizer(name, made, 0.9, weight_decay)
    for step in range(5):
        set_lr(optimizer, 0.3 / (1 + step))
        for p, g in zip(made.parameters(), gradients(made, step), strict=True):
            p.grad = g
        optimizer.step()
    return [p.detach().flatten().tolist() for p in made.parameters()]


def norm(values: list[float]) -> float:
    return math.sqrt(math.fsum(x * x for x in values))


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_lars_steps_as_a_loop_written_by_hand(weight_decay: float) -> None:
    made = module()
    weights = [p.detach().flatten().tolist() for p in made.parameters()]
    velocity = [[0.0] * len(w) for w in weights]
    for step in range(5):
        for i, (p, g) in enumerate(zip(made.parameters(), gradients(made, step), strict=True)):
            matrix, gradient = p.ndim > 1, g.flatten().tolist()
            if matrix:
                gradient = [x + weight_decay * w for x, w in zip(gradient, weights[i], strict=True)]
                ratio = 0.001 * norm(weights[i]) / norm(gradient) if norm(weights[i]) > 0 else 1.0
                gradient = [ratio * x for x in gradient]
            velocity[i] = [0.9 * v + x for v, x in zip(velocity[i], gradient, strict=True)]
            weights[i] = [w - 0.3 / (1 + step) * v for w, v in zip(weights[i], velocity[i], strict=True)]
    for found, expected in zip(stepped("lars", weight_decay), weights, strict=True):
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_sgd_decays_everything_as_torch_does() -> None:
    made = module()
    optimizer = torch.optim.SGD(made.parameters(), lr=1.0, momentum=0.9, weight_decay=0.01)
    for step in range(5):
        optimizer.param_groups[0]["lr"] = 0.3 / (1 + step)
        for p, g in zip(made.parameters(), gradients(made, step), strict=True):
            p.grad = g
        optimizer.step()
    assert stepped("sgd", 0.01) == [p.detach().flatten().tolist() for p in made.parameters()]


def test_adamw_decays_weights_alone() -> None:
    made = module()
    groups = [{"params": [p], "weight_decay": 0.01 if p.ndim > 1 else 0.0} for p in made.parameters()]
    optimizer = torch.optim.AdamW(groups)
    for step in range(5):
        for group in optimizer.param_groups:
            group["lr"] = 0.3 / (1 + step)
        for p, g in zip(made.parameters(), gradients(made, step), strict=True):
            p.grad = g
        optimizer.step()
    for found, expected in zip(stepped("adamw", 0.01), made.parameters(), strict=True):
        assert found == pytest.approx(expected.detach().flatten().tolist(), rel=1e-12)


def test_the_setting_takes_every_optimizer_and_no_other() -> None:
    for name in OPTIMIZERS:
        assert settings({"data": "digits", "optimizer": name}).optimizer == name
    with pytest.raises(UserError, match="no optimizer is called 'adamv': did you mean 'adamw'"):
        settings({"data": "digits", "optimizer": "adamv"})
