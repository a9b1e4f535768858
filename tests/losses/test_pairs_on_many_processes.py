"""Pairs on one, two and four real processes: value, gradient of the weights and of the temperature, through DDP."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import several_processes

from dualtemp import distributed, losses

N = 12
g = torch.Generator().manual_seed(3)
IDS, LABELS = torch.randint(6, (2, N), generator=g)
LABELS[-1] = 99  # an anchor without positives where the other view does not count
PADDING = torch.arange(N) % 5 == 2
WEIGHT = torch.rand(N, generator=g, dtype=torch.float64)
MASK = torch.rand(N, N, generator=g) < 0.4  # not symmetric
Loss = Callable[..., Tensor]


def local(settings: dict[str, Any], mine: slice) -> dict[str, Any]:
    return {name: x[mine] if isinstance(x, Tensor) else x for name, x in settings.items()}


def both(**settings: Any) -> Loss:
    return lambda q, k, tau, mine: losses.two_towers(q, k, tau, gather=True, **local(settings, mine))


def supervised(one_view: bool = False, **settings: Any) -> Loss:
    return lambda q, k, tau, mine: losses.supervised_contrastive(
        q,
        None if one_view else k,
        LABELS[mine],
        tau,
        gather=True,
        **local(settings, mine),
    )


LOSSES: dict[str, Loss] = {
    "as it stands": both(),
    "one direction, two temperatures": both(both_directions=False, tau_beta=1.0, ids=IDS),
    "ids, labels, both views": both(ids=IDS, labels=LABELS, both_views=True, tau_beta=0.5),
    "mask": both(mask=MASK),
    "mask, both views, padding": both(mask=MASK, both_views=True, padding_mask=PADDING),
    "weights": both(pair_weight=WEIGHT, padding_mask=PADDING),
    "nothing counts": both(ids=torch.zeros(N, dtype=torch.long)),
    "supervised": supervised(),
    "supervised, one view": supervised(one_view=True, tau_beta=1.0, padding_mask=PADDING),
    "supervised, the other view": supervised(both_views=False, tau_beta=1.0, pair_weight=WEIGHT),
    "ids and labels of 16 bits": both(ids=IDS.short(), labels=LABELS.short()),
    "supervised, labels of 16 bits": lambda q, k, tau, mine: losses.supervised_contrastive(
        q, k, LABELS[mine].short(), tau, gather=True
    ),
    "supervised, one direction": supervised(both_directions=False, padding_mask=PADDING),
}


class Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = (nn.Linear(10, 6).double() for _ in range(2))
        self.log_scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.first(views[:, 0]), self.second(views[:, 1]), self.log_scale.exp().reciprocal()


def values_and_gradients() -> dict[str, dict]:
    """Of this process's part of the batch; without a group, of the whole."""
    results: dict[str, dict] = {}
    mine = slice(*(N * (distributed.rank() + i) // distributed.world_size() for i in (0, 1)))
    views = torch.randn(N, 2, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for name, loss in LOSSES.items():
        model = Towers()
        wrapped = model
        if distributed.world_size() > 1:
            wrapped = DistributedDataParallel(model, find_unused_parameters=True)
        value = loss(*wrapped(views[mine]), mine)
        value.backward()
        gradients = {n: torch.zeros(()) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}
        results[name] = {"value": value.detach(), "gradients": gradients}
        del wrapped
    return results


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_pairs_on_several_processes_are_those_of_one(processes: int, tmp_path: Path) -> None:
    one = values_and_gradients()
    for rank in several_processes.run(__file__, "values_and_gradients", processes, tmp_path / "out"):
        for name, found in rank.items():
            torch.testing.assert_close(found["value"], one[name]["value"], rtol=1e-12, atol=1e-14, msg=name)
            for parameter, gradient in found["gradients"].items():
                reference = one[name]["gradients"][parameter]
                torch.testing.assert_close(gradient, reference.expand_as(gradient), rtol=1e-10, atol=1e-13, msg=name)
                unused = parameter.startswith("second") and name == "supervised, one view"
                assert name == "nothing counts" or unused or reference.abs().max() > 1e-6
    assert one["nothing counts"]["value"] == 0
