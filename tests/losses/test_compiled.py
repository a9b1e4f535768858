"""torch.compile and torch.export take an encoder with any of the losses, whole; torch.func is refused."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from dualtemp import losses

KEYS = torch.randn(20, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LABELS = torch.arange(12) % 4
LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "dual_temperature": lambda q, k, tau: losses.dual_temperature(q, k),
    "detached keys": lambda q, k, tau: losses.dual_temperature(q, k.detach(), both_directions=False),
    "both views": lambda q, k, tau: losses.dual_temperature(q, k, both_views=True),
    "low temperature": lambda q, k, tau: losses.dual_temperature(q, k, 0.001, 0.5),
    "infinite temperature": lambda q, k, tau: losses.dual_temperature(q, k, 0.1, math.inf),
    "equal": lambda q, k, tau: losses.dual_temperature(q, k, weight="equal"),
    "nt_xent": lambda q, k, tau: losses.nt_xent(q, k),
    "info_nce": lambda q, k, tau: losses.info_nce(q, k, KEYS),
    "decomposed": lambda q, k, tau: losses.decomposed(q, k, KEYS, KEYS[:9], 0.1, 1.0),
    "equal_anchors": lambda q, k, tau: losses.equal_anchors(q, k, KEYS),
    "simple": lambda q, k, tau: losses.simple(q, k, KEYS),
    "negative_cosine": lambda q, k, tau: losses.negative_cosine(q, k.detach(), losses.in_batch_weight(q, k)),
    "cross_entropy": lambda q, k, tau: losses.cross_entropy(q, LABELS, 1.0, math.inf),
    "two_towers": lambda q, k, tau: losses.two_towers(q, k, tau),
    "two_towers with ids": lambda q, k, tau: losses.two_towers(
        q, k, tau, 1.0, ids=LABELS, labels=LABELS // 2, both_views=True, pair_weight=torch.ones(12)
    ),
    "two_towers with a mask": lambda q, k, tau: losses.two_towers(
        q, k, 0.1, mask=LABELS[:, None] < LABELS, padding_mask=LABELS == 0
    ),
    "supervised_contrastive": lambda q, k, tau: losses.supervised_contrastive(q, k, LABELS, tau, 1.0),
    "vicreg": lambda q, k, tau: losses.vicreg(q, k),
    "barlow_twins": lambda q, k, tau: losses.barlow_twins(q, k),
    "one view": lambda q, k, tau: losses.supervised_contrastive(q, None, LABELS, padding_mask=LABELS == 2),
}
ANY_LENGTH = [
    name
    for name in LOSSES
    if name not in ("cross_entropy", "supervised_contrastive", "one view") and " with " not in name
]  # the others have labels, ids or a mask for a batch of 12
QUICK = ("two_towers with ids",)  # in the usual suite: its parts are those of all


class Training(nn.Module):
    """An encoder, a temperature and a loss: views in, loss out."""

    def __init__(self, loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Linear(10, 6).double()
        self.log_scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
        self.loss = loss

    def forward(self, view1: Tensor, view2: Tensor) -> Tensor:
        return self.loss(self.encoder(view1), self.encoder(view2), self.log_scale.exp().reciprocal())


def views(n: int = 12, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    return torch.randn(2, n, 10, generator=torch.Generator().manual_seed(2), dtype=dtype).unbind()  # pyright: ignore


def gradients(loss: Tensor, training: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(training.parameters()), materialize_grads=True))


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in LOSSES]
)
def test_a_compiled_step_has_no_break_and_gives_the_same(name: str) -> None:
    training = Training(LOSSES[name])
    torch.compiler.reset()
    compiled = torch.compile(training, fullgraph=True, backend="aot_eager")
    expected, found = training(*views()), compiled(*views())
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for ours, reference in zip(gradients(found, training), gradients(expected, training), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_an_exported_step_gives_the_same(name: str) -> None:
    training = Training(LOSSES[name])
    program = torch.export.export(training, views())
    torch.testing.assert_close(program.module()(*views()), training(*views()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "name", [name if name == "dual_temperature" else pytest.param(name, marks=pytest.mark.slow) for name in ANY_LENGTH]
)
def test_a_batch_of_any_length_needs_one_graph(name: str) -> None:
    training, length = Training(LOSSES[name]), torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(training, views(), dynamic_shapes=({0: length}, {0: length})).module()
    torch.compiler.reset()
    graphs = CompileCounter()
    counted = torch.compile(training, fullgraph=True, backend=graphs, dynamic=True)
    for n in (12, 16, 7):
        expected = training(*views(n))
        torch.testing.assert_close(program(*views(n)), expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(counted(*views(n)), expected, rtol=1e-12, atol=1e-12)
    assert graphs.frame_count == 1


class WithIndex(nn.Module):
    """A loss whose weight is kept per image."""

    def __init__(self, weight: str) -> None:
        super().__init__()
        self.loss = losses.DualTemperatureLoss(weight=weight, images=64)

    def forward(self, q: Tensor, k: Tensor, index: Tensor) -> Tensor:
        return self.loss(q, k, index=index)


@pytest.mark.parametrize("weight", ["memory", "per_image"])
def test_weights_kept_per_image_need_one_graph_for_a_batch_of_any_length(weight: str) -> None:
    batches = [(*views(n, torch.float32), torch.randperm(64)[:n]) for n in (12, 7)]
    length = torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(WithIndex(weight), batches[0], dynamic_shapes=({0: length},) * 3).module()
    torch.compiler.reset()
    eager, graphs = WithIndex(weight), CompileCounter()
    counted = torch.compile(WithIndex(weight), fullgraph=True, backend=graphs, dynamic=True)
    for batch in batches:
        expected = eager(*batch)
        torch.testing.assert_close(program(*batch), expected)
        torch.testing.assert_close(counted(*batch), expected)
    assert graphs.frame_count == 1


def test_torch_export_takes_a_module_with_its_learned_temperature() -> None:
    module = losses.TwoTowersLoss(0.5)
    program = torch.export.export(module, views(dtype=torch.float32)).module()
    torch.testing.assert_close(program(*views(dtype=torch.float32)), module(*views(dtype=torch.float32)))


def test_torch_export_traces_two_towers_with_their_temperature() -> None:
    training = Training(LOSSES["two_towers"])
    program = torch.export.export(training, views())
    assert "dualtemp.tiled_log_sum_exp" in str(program.graph)
    with torch.no_grad():
        training.log_scale.fill_(3.0)
    torch.testing.assert_close(program.module()(*views()), training(*views()), rtol=1e-12, atol=1e-12)


def test_a_temperature_that_leaves_its_range_in_a_compiled_step_is_one_line() -> None:
    training = Training(lambda q, k, tau: losses.two_towers(q, k, tau - 1))
    torch.compiler.reset()
    with pytest.raises(ValueError, match="tau must be a number > 0"):
        torch.compile(training, fullgraph=True, backend="aot_eager")(*views())


@pytest.mark.slow
def test_inductor_and_autocast_with_a_scaler_give_the_same() -> None:
    training = Training(LOSSES["dual_temperature"]).float()
    torch.compiler.reset()
    compiled = torch.compile(training, fullgraph=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)  # pyright: ignore
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, found = (step(*views(dtype=torch.float32)) for step in (training, compiled))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)
    scaled = gradients(scaler.scale(found), training)
    for ours, reference in zip(scaled, gradients(expected, training), strict=True):
        torch.testing.assert_close(ours / 1024, reference, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize(
    "name", ["dual_temperature", "nt_xent", "two_towers with ids", "supervised_contrastive", "cross_entropy", "vicreg"]
)
def test_torch_func_is_refused_in_one_line(name: str) -> None:
    q, k = (x[:, :6].clone() for x in views())
    tau = torch.tensor(0.1, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"cannot be transformed by torch[.]func"):
        torch.func.grad(lambda q: LOSSES[name](q, k, tau))(q)
    with pytest.raises(RuntimeError, match=r"cannot be transformed by torch[.]func"):
        torch.func.vmap(lambda q: LOSSES[name](q, k, tau))(q[None])


@pytest.mark.slow
def test_a_compiled_loss_refuses_a_second_derivative() -> None:
    training = Training(LOSSES["dual_temperature"])
    torch.compiler.reset()
    loss = torch.compile(training, fullgraph=True, backend="aot_eager")(*views())
    (gradient,) = torch.autograd.grad(loss, training.encoder.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        gradient.sum().backward()


def test_the_operators_pass_pytorchs_own_checks() -> None:
    from dualtemp.losses.operators import tiled_labeled_losses, tiled_log_sum_exp

    a, b = (nn.functional.normalize(x[:, :6]).requires_grad_() for x in views(8))
    tau = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    ids = LABELS[:8]
    checks = ("test_schema", "test_faketensor")
    settings = (1.0, 0.5, 0, True, False, False, False, [ids], [ids], None, None, None)
    torch.library.opcheck(tiled_log_sum_exp, (a, b, tau, *settings), test_utils=checks)
    labelled = (1.0, 0.5, -1, [], [], None, ids == 1, None)
    torch.library.opcheck(tiled_labeled_losses, (a, b, ids, ids, tau, *labelled), test_utils=checks)
