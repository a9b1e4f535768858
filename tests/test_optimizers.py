"""Optimizers, against independent computations."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dualtemp.config import settings
from dualtemp.errors import UserError
from dualtemp.lars import LARS
from dualtemp.muon import Muon, orthogonalize
from dualtemp.optimizers import OPTIMIZERS, build_optimizer, restore_optimizer, set_lr


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


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (1, 4)])
def test_muon_changes_the_singular_values_of_a_matrix_and_nothing_else(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    expected = []
    for value in (values / values.square().sum().sqrt()).tolist():
        for _ in range(5):
            value = 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5
        expected.append(value)
    found = orthogonalize(matrix)
    torch.testing.assert_close(found, left @ torch.tensor(expected, dtype=torch.float64).diag() @ right)
    assert all(0.65 < value < 1.25 for value in expected)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has no Muon yet")
def test_muon_steps_as_torchs_does_which_rounds_to_bfloat16() -> None:
    start = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    own, other = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    how: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.5}
    optimizers = Muon([own], **how), torch.optim.Muon([other], adjust_lr_fn="match_rms_adamw", **how)
    for step in range(4):
        gradient = torch.randn(6, 9, generator=torch.Generator().manual_seed(1 + step))
        for p, optimizer in zip((own, other), optimizers, strict=True):
            p.grad = gradient.clone()
            optimizer.step()
    moved = (other - start).norm()
    assert (own - other).norm() < 0.03 * moved


def test_muon_leaves_biases_and_scales_to_adam_without_decay() -> None:
    made = module()
    vectors = [i for i, p in enumerate(made.parameters()) if p.ndim == 1]
    optimizer = torch.optim.AdamW(made.parameters(), weight_decay=0.0)
    for step in range(5):
        optimizer.param_groups[0]["lr"] = 0.3 / (1 + step)
        for p, g in zip(made.parameters(), gradients(made, step), strict=True):
            p.grad = g
        optimizer.step()
    found, expected = stepped("muon", 0.01), [p.detach().flatten().tolist() for p in made.parameters()]
    assert vectors
    for i in vectors:
        assert found[i] == pytest.approx(expected[i], rel=1e-9)


def test_muon_of_all_parameters_at_once_steps_as_in_groups() -> None:
    ended = []
    for at_once in (True, False):
        made = module()
        optimizer = Muon(made.parameters()) if at_once else build_optimizer("muon", made, 0.9, 0.0)
        for step in range(3):
            set_lr(optimizer, 0.1)
            for p, g in zip(made.parameters(), gradients(made, step), strict=True):
                p.grad = g
            optimizer.step()
        ended.append(list(made.parameters()))
    assert {p.ndim for p in ended[0]} >= {1, 2}
    assert all(map(torch.equal, *ended))


def test_muon_takes_a_convolution_as_a_matrix_of_its_output_channels_in_any_layout() -> None:
    start, gradient = torch.randn(2, 4, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    moved = []
    for shape, layout in [
        ((4, 3, 3, 3), torch.contiguous_format),
        ((4, 3, 3, 3), torch.channels_last),
        ((4, 27), torch.contiguous_format),
    ]:
        p = nn.Parameter(start.reshape(shape).clone(memory_format=layout))
        p.grad = gradient.reshape(shape).contiguous(memory_format=layout)
        Muon([p], lr=0.1).step()
        moved.append(p.detach().reshape(4, 27))
    assert torch.equal(moved[0], moved[1])
    torch.testing.assert_close(moved[0], moved[2])  # columns in another order: rounded differently


def test_the_setting_takes_every_optimizer_and_no_other() -> None:
    for name in OPTIMIZERS:
        assert settings({"data": "digits", "optimizer": name}).optimizer == name
    with pytest.raises(UserError, match="no optimizer is called 'adamv': did you mean 'adamw'"):
        settings({"data": "digits", "optimizer": "adamv"})


def step_by_closure(optimizer: torch.optim.Optimizer, p: nn.Parameter) -> Tensor:
    """One step on |p|^2 / 2; returns what the optimizer returns."""

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = p.square().sum() / 2
        loss.backward()
        return loss

    return optimizer.step(closure)  # pyright: ignore[reportArgumentType, reportReturnType, reportCallIssue]


def test_lars_leaves_a_matrix_without_gradient_as_it_is() -> None:
    weight = nn.Parameter(torch.ones(2, 3))
    weight.grad = torch.zeros(2, 3)
    LARS([weight], lr=0.1).step()
    assert torch.equal(weight, torch.ones(2, 3))


def test_a_step_of_muon_has_the_length_of_adams() -> None:
    weight = nn.Parameter(torch.zeros(4, 6, dtype=torch.float64))
    gradient = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight.grad = gradient.clone()
    Muon([weight], lr=0.1, momentum=0.0).step()
    torch.testing.assert_close(weight.detach(), -0.1 * 0.2 * 6**0.5 * orthogonalize(gradient, 5))


def test_lars_calls_a_closure_before_it_steps_and_returns_its_loss() -> None:
    p = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    assert step_by_closure(LARS([p], lr=0.1, momentum=0.0, trust=0.5), p) == 12.5
    torch.testing.assert_close(p.detach(), torch.tensor([[3.0, 4.0]]) * (1 - 0.1 * 0.5))  # |w| / |gradient| is 1


def test_muon_calls_a_closure_before_it_steps_and_returns_its_loss() -> None:
    p = nn.Parameter(torch.tensor([[3.0, 4.0]]))
    assert step_by_closure(Muon([p], lr=0.1), p) == 12.5
    assert p.norm() < 5


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_restored_optimizer_has_its_own_settings_and_what_was_kept_of_each_parameter(name: str) -> None:
    def step(optimizer: torch.optim.Optimizer, of: nn.Module, number: int) -> None:
        set_lr(optimizer, 0.3)
        for p, g in zip(of.parameters(), gradients(of, number), strict=True):
            p.grad = g
        optimizer.step()

    first, second = module(), module()
    before = build_optimizer(name, first, 0.9, 0.1)
    for number in range(3):
        step(before, first, number)
    second.load_state_dict(first.state_dict())
    after = build_optimizer(name, second, 0.5, 0.0)
    assert restore_optimizer(after, copy.deepcopy(before.state_dict()))  # torch would share the tensors
    for group in before.param_groups:  # what the new settings say, by hand
        group |= {"weight_decay": 0.0} | ({"momentum": 0.5} if "momentum" in group else {})
    for number in range(3, 6):
        step(before, first, number)
        step(after, second, number)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_an_optimizer_with_other_groups_is_not_restored() -> None:
    one, other = module(), module()
    saved = build_optimizer("sgd", one, 0.9, 0.0).state_dict()
    rates: dict[Tensor, float] = dict.fromkeys(list(other.parameters())[:2], 0.5)
    optimizer = build_optimizer("sgd", other, 0.9, 0.0, rates)
    assert not restore_optimizer(optimizer, saved)
    assert [group["rate"] for group in optimizer.param_groups] == [0.5, 1.0]
