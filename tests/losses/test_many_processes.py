"""Two real processes with half the batch each are one process with the whole: value, and gradient of the weights.

The encoder is wrapped in DistributedDataParallel, as a user would do.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import several_processes

from dualtemp import KeyDictionary, distributed, losses

N = 12
Loss = Callable[..., Tensor]


def detached_keys(q: Tensor, k: Tensor, **settings) -> Tensor:
    return losses.dual_temperature(q, k.detach(), 0.1, 1.0, both_directions=False, **settings)


def weighted_cosine(q: Tensor, k: Tensor, gather: bool) -> Tensor:
    weight = losses.in_batch_weight(q, k, gather=gather)
    return distributed.global_mean(losses.negative_cosine(q, k.detach(), weight))


LOSSES: dict[str, Loss] = {
    "nt_xent": losses.nt_xent,
    "dual_temperature": losses.dual_temperature,
    "one direction": lambda q, k, **s: losses.dual_temperature(q, k, both_directions=False, **s),
    "detached keys": detached_keys,
    "detached keys, both views": lambda q, k, **s: detached_keys(q, k, both_views=True, **s),
    "both views": lambda q, k, **s: losses.dual_temperature(q, k, both_views=True, **s),
    "tau_beta inf": lambda q, k, **s: losses.dual_temperature(q, k, 0.1, float("inf"), **s),
    "low tau": lambda q, k, **s: losses.dual_temperature(q, k, 0.02, 0.02, **s),
    "weighted cosine": weighted_cosine,
    # Both are blind to what is added to every image: behind a tanh a bias counts.
    "vicreg": lambda q, k, **s: losses.vicreg(q.tanh(), k.tanh(), **s),
    "barlow_twins": lambda q, k, **s: losses.barlow_twins(q.tanh(), k.tanh(), **s),
}


class TwoViews(nn.Module):
    """One forward per step, so that DistributedDataParallel sees one use of the weights."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 6)).to(dtype)

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor]:
        q, k = self.encoder(views).unbind(1)
        return q, k


def values_and_gradients() -> dict[str, dict]:
    """Of this process's part of the batch; without a group, of the whole."""
    results: dict[str, dict] = {}
    mine = slice(*(N * (distributed.rank() + i) // distributed.world_size() for i in (0, 1)))
    for dtype in (torch.float64, torch.float32):
        views = torch.randn(N, 2, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
        for name, loss in LOSSES.items():
            model = TwoViews(dtype)
            wrapped = DistributedDataParallel(model) if distributed.world_size() > 1 else model
            value = loss(*wrapped(views[mine]), gather=True)
            value.backward()
            gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
            results[f"{name}, {dtype}"] = {"value": value.detach(), "gradients": gradients}
            del wrapped
    return results


def stats_dictionary_and_refusals() -> dict:
    q, k = torch.randn(2, N, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    n = N // distributed.world_size()
    mine = slice(distributed.rank() * n, (distributed.rank() + 1) * n)
    stats: dict[str, Tensor] = {}
    each = losses.dual_temperature(q[mine], k[mine], gather=True, reduction="none", stats=stats)
    dictionary = KeyDictionary(20, 6)
    dictionary.enqueue(k[mine], gather=True)
    alone = losses.dual_temperature(q[mine], k[mine])
    said = ""
    if distributed.world_size() > 1:
        uneven = slice(0, 3 + distributed.rank())
        try:
            losses.dual_temperature(q[uneven], k[uneven], gather=True)
        except ValueError as error:
            said = str(error)
    one_each = losses.dual_temperature(q[mine][:1], k[mine][:1], gather=True) if distributed.world_size() > 1 else None
    return {"each": each, **stats, "keys": dictionary.keys, "alone": alone, "said": said, "one each": one_each}


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> list[dict]:
    return several_processes.run(__file__, "values_and_gradients", 2, tmp_path_factory.mktemp("two") / "out")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", LOSSES)
def test_value_and_weight_gradients_are_those_of_one_process(name: str, dtype: torch.dtype, two: list[dict]) -> None:
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    if name == "low tau":  # rounding of similarities counts 1 / tau times
        tolerance *= 5
    one = values_and_gradients()[f"{name}, {dtype}"]
    for rank in two:
        found = rank[f"{name}, {dtype}"]
        torch.testing.assert_close(found["value"], one["value"], rtol=tolerance, atol=tolerance)
        for a, b in zip(found["gradients"], one["gradients"], strict=True):
            scale = max(1.0, b.abs().max().item())
            torch.testing.assert_close(a, b, rtol=0, atol=tolerance * scale)
            assert b.abs().max() > 1e-6


def uneven_batches() -> dict[str, list[Tensor]]:
    """Values, and gradients of this process's rows as the average over processes leaves them."""
    q, k = torch.randn(2, N, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    world, rank = distributed.world_size(), distributed.rank()
    ends = {1: (0, N), 2: (0, 5, N), 4: (0, 5, 6, 8, N)}[world]
    mine = slice(ends[rank], ends[rank + 1])
    found, named = {}, dict[str, Loss](vicreg=losses.vicreg, barlow_twins=losses.barlow_twins)
    for name, loss in named.items():
        leaves = [x[mine].clone().requires_grad_() for x in (q, k)]
        value = loss(*leaves, gather=True)
        value.backward()
        found[name] = [value.detach(), *(x.grad / world for x in leaves)]  # pyright: ignore
    return found


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_losses_without_negatives_take_local_batches_of_any_sizes(world: int, tmp_path: Path) -> None:
    one, ranks = uneven_batches(), several_processes.run(__file__, "uneven_batches", world, tmp_path / "out")
    for name, (value, *gradients) in one.items():
        for rank in ranks:
            torch.testing.assert_close(rank[name][0], value, rtol=1e-12, atol=1e-12)
        for i, expected in enumerate(gradients):
            found = torch.cat([rank[name][1 + i] for rank in ranks])
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vicreg", "barlow_twins"])
def test_four_processes_are_one_too(name: str, tmp_path: Path) -> None:
    one = values_and_gradients()[f"{name}, {torch.float64}"]
    for rank in several_processes.run(__file__, "values_and_gradients", 4, tmp_path / "out"):
        found = rank[f"{name}, {torch.float64}"]
        torch.testing.assert_close(found["value"], one["value"], rtol=1e-12, atol=1e-12)
        for a, b in zip(found["gradients"], one["gradients"], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_stats_dictionary_and_refusals_on_two_processes(tmp_path: Path) -> None:
    one = stats_dictionary_and_refusals()
    first, second = several_processes.run(__file__, "stats_dictionary_and_refusals", 2, tmp_path / "out")
    for name in ("each", "W", "p_pos", "r_pos"):
        torch.testing.assert_close(torch.cat((first[name], second[name]), -1), one[name], rtol=1e-12, atol=1e-14)
    assert torch.equal(first["keys"], second["keys"])
    assert torch.equal(first["keys"], one["keys"])
    assert first["alone"] != second["alone"]  # without gather each process sees its own batch
    for rank in (first, second):
        assert rank["said"].startswith("gather: every process must bring the same local batch, got shapes [(3, 12)")
        assert rank["one each"].isfinite()  # one pair on each of two processes: a negative each
