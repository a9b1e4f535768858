"""What the losses of any pairs are equal to: formulas as published, other libraries, each other."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dualtemp import losses
from dualtemp.losses import product_plan
from dualtemp.torchvision_operators import declare_missing_operators


def drawn(seed: int, N: int, D: int = 6) -> tuple[Tensor, Tensor]:
    a, b = torch.randn(2, N, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return a.requires_grad_(), (a.detach() + b).requires_grad_()


def close(ours: Tensor, theirs: Tensor, leaves: tuple[Tensor, ...], tolerance: float = 1e-11) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    for x, y in zip(torch.autograd.grad(ours, leaves), torch.autograd.grad(theirs, leaves), strict=True):
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)


def clip(image: Tensor, text: Tensor, log_scale: Tensor) -> Tensor:
    """The published formula: cross-entropy of the scaled cosines, rows and columns."""
    logits = log_scale.exp() * F.normalize(image, dim=1) @ F.normalize(text, dim=1).T
    target = torch.arange(len(image))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


@given(seed=st.integers(0, 2**31), N=st.integers(2, 30), start=st.floats(0.0, 4.6))
@settings(max_examples=30)
def test_two_towers_are_clip_and_its_scale_learns(seed: int, N: int, start: float) -> None:
    a, b = drawn(seed, N)
    log_scale = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    ours = losses.two_towers(a, b, log_scale.exp().reciprocal())
    close(ours, clip(a, b, log_scale), (a, b, log_scale), 1e-9)


@pytest.mark.parametrize("normalize", [True, False])
def test_a_temperature_learns_alike_where_both_towers_are_one_tensor(normalize: bool) -> None:
    a = F.normalize(drawn(3, 12)[0].detach(), dim=1).requires_grad_()
    tau = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    ours = losses.two_towers(a, a, tau, both_directions=False, normalize=normalize)
    x = F.normalize(a, dim=1) if normalize else a
    close(ours, F.cross_entropy(x @ x.T / tau, torch.arange(12)), (a, tau))


def test_two_towers_are_the_loss_of_open_clip() -> None:
    declare_missing_operators()
    theirs = pytest.importorskip("open_clip.loss", reason="open_clip is not installed").ClipLoss()
    a, b = drawn(0, 20)
    scale = torch.tensor(14.0, dtype=torch.float64, requires_grad=True)
    close(losses.two_towers(a, b, 1 / scale), theirs(F.normalize(a), F.normalize(b), scale), (a, b, scale))


def test_two_towers_are_the_dual_temperature_loss_where_nothing_is_left_out() -> None:
    a, b = drawn(0, 20)
    cases: list[dict[str, Any]] = [{}, {"both_directions": False}, {"both_views": True}]
    for options in cases:
        close(losses.two_towers(a, b, 0.1, 1.0, **options), losses.dual_temperature(a, b, 0.1, 1.0, **options), (a, b))


def test_pairs_left_out_are_as_if_they_were_not_there() -> None:
    a, b = drawn(1, 20)
    padding = torch.arange(20) % 3 == 1
    cases: list[dict[str, Any]] = [{}, {"tau_beta": 1.0}, {"tau_beta": math.inf, "both_views": True}]
    for options in cases:
        named: dict[str, Any] = {"pair_weight": (~padding).double(), "mask": padding[:, None] | padding}
        for how in ({"padding_mask": padding}, named):
            left = losses.two_towers(a, b, 0.1, **how, **options)
            close(left, losses.two_towers(a[~padding], b[~padding], 0.1, **options), (a, b))


def sup_con(z: Tensor, labels: Tensor, tau: float) -> Tensor:
    """Khosla et al., L_out: log-softmax over all others, the mean over positives outside the logarithm."""
    logits = F.normalize(z) @ F.normalize(z).T / tau
    logits = logits.masked_fill(torch.eye(len(z), dtype=torch.bool), -math.inf)
    positives = (labels[:, None] == labels) & ~torch.eye(len(z), dtype=torch.bool)
    each = torch.where(positives, -F.log_softmax(logits, 1), 0).sum(1) / positives.sum(1)
    return each.mean()


@given(seed=st.integers(0, 2**31), N=st.integers(2, 20), classes=st.integers(1, 5), tau=st.floats(0.05, 1))
@settings(max_examples=30)
def test_one_temperature_is_sup_con(seed: int, N: int, classes: int, tau: float) -> None:
    q, k = drawn(seed, N)
    labels = torch.randint(classes, (N,), generator=torch.Generator().manual_seed(seed))
    ours = losses.supervised_contrastive(q, k, labels, tau)
    close(ours, sup_con(torch.cat((q, k)), labels.repeat(2), tau), (q, k), 1e-10)


def test_one_temperature_is_sup_con_of_pytorch_metric_learning() -> None:
    theirs = pytest.importorskip("pytorch_metric_learning.losses", reason="it is not installed").SupConLoss(0.1)
    z, _ = drawn(2, 24)
    labels = torch.arange(24) % 5
    close(losses.supervised_contrastive(z, None, labels, 0.1), theirs(z, labels), (z,))


def test_a_label_for_each_image_is_nt_xent_with_two_views_and_dual_temperature_with_one_positive() -> None:
    q, k = drawn(3, 15)
    each = torch.arange(15)
    close(losses.supervised_contrastive(q, k, each, 0.1), losses.nt_xent(q, k, 0.1), (q, k))
    for tau_beta in (0.1, 1.0, math.inf):
        other = losses.supervised_contrastive(q, k, each, 0.1, tau_beta, both_views=False)
        close(other, losses.dual_temperature(q, k, 0.1, tau_beta), (q, k))
        both = losses.supervised_contrastive(q, k, each, 0.1, tau_beta)
        close(both, losses.dual_temperature(q, k, 0.1, tau_beta, both_views=True), (q, k))


@pytest.mark.parametrize("tiling", [(1 << 18, 1 << 24), (6, 0)])
def test_the_gradient_for_the_temperature_is_that_of_the_value(tiling, monkeypatch) -> None:
    product_plan.plan_of_pairs.cache_clear()
    monkeypatch.setitem(product_plan.TILE_ELEMENTS, "cpu", tiling[0])
    monkeypatch.setattr(product_plan, "KEPT_ELEMENTS", tiling[1])
    a, b = drawn(4, 6, 4)
    fixed_a, fixed_b = a.detach(), b.detach()
    labels = torch.tensor([0, 1, 0, 2, 1, 0])
    for start in (0.05, 0.3):
        tau = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        for call, leaves in (
            (lambda tau, a, b: losses.two_towers(a, b, tau), (a, b)),
            (lambda tau, a, b: losses.two_towers(a, b, tau, labels=labels, both_views=True), (a, b)),
            (lambda tau, a: losses.two_towers(a, fixed_b, tau, both_directions=False), (a,)),
            (lambda tau, a: losses.two_towers(a, a, tau, both_directions=False), (a,)),
            (lambda tau: losses.two_towers(fixed_a, fixed_b, tau, ids=labels), ()),
            (lambda tau, a, b: losses.supervised_contrastive(a, b, labels, tau), (a, b)),
            (lambda tau, a: losses.supervised_contrastive(a, None, labels, tau), (a,)),
            (lambda tau: losses.supervised_contrastive(fixed_a, None, labels, tau), ()),
        ):
            assert torch.autograd.gradcheck(call, (tau, *leaves), eps=1e-7, atol=1e-4, rtol=1e-4)


def test_a_positive_that_outweighs_all_other_keys_keeps_the_digits_of_its_weight() -> None:
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.01], [0.0, -1.0]]).requires_grad_()  # float32
    labels = torch.tensor([0, 0, 1, 2])
    value = losses.supervised_contrastive(z, None, labels, 0.05, 1.0, reduction="none")
    precise = z.detach().double().requires_grad_()
    expected = losses.supervised_contrastive(precise, None, labels, 0.05, 1.0, reduction="none")
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=0)
    gradient, reference = torch.autograd.grad(value[0], z)[0], torch.autograd.grad(expected[0], precise)[0]
    torch.testing.assert_close(gradient.double(), reference, rtol=1e-4, atol=1e-9)
    assert reference[0].abs().max() > 1e-4  # tau_beta gives the easy anchor its weight back


def test_the_module_learns_its_temperature_and_does_not_fall_below_the_least() -> None:
    a, _ = drawn(5, 16)
    criterion = losses.TwoTowersLoss(tau=0.1)
    optimizer = torch.optim.SGD(criterion.parameters(), lr=10.0)
    for _ in range(20):
        optimizer.zero_grad()
        criterion(a.detach(), a.detach()).backward()
        optimizer.step()
    criterion(a, a)
    assert criterion.tau == pytest.approx(0.01)  # pairs that agree want the lowest
    criterion.tau = 0.5
    assert criterion.state_dict()["logit_scale"].item() == pytest.approx(math.log(2))
    assert list(criterion.state_dict()) == ["logit_scale"]
    fixed = losses.TwoTowersLoss(tau=0.2, learn_tau=False)
    assert list(fixed.parameters()) == []
    assert torch.equal(fixed(a, a), losses.two_towers(a, a, 0.2))
    fixed.tau, fixed.tau_beta = 0.3, 1.0
    assert torch.equal(fixed(a, a), losses.two_towers(a, a, 0.3, 1.0))


@pytest.mark.parametrize("value", [0.0, -0.1, math.nan, math.inf])
def test_a_temperature_that_leaves_its_range_while_it_learns_is_one_line(value: float) -> None:
    a, b = drawn(0, 4)
    tau = nn.Parameter(torch.tensor(value))
    for call in (
        lambda: losses.two_towers(a, b, tau),
        lambda: losses.supervised_contrastive(a, b, torch.arange(4), tau),
    ):
        with pytest.raises(ValueError, match=r"^tau\w* must be a number > 0 \(finite\), got .*learn its logarithm$"):
            call()
    criterion = losses.TwoTowersLoss()
    with pytest.raises(ValueError, match="tau must be a number > 0"):
        criterion.tau = value


def test_bad_pairs_are_one_line() -> None:
    a, b = drawn(0, 4)
    labels = torch.arange(4)
    wrong = {
        "ids must hold 4 whole numbers": lambda: losses.two_towers(a, b, ids=labels.float()),
        "labels must hold 4 whole numbers": lambda: losses.two_towers(a, b, labels=labels[:3]),
        "padding_mask must hold 4 booleans": lambda: losses.two_towers(a, b, padding_mask=labels),
        "mask must hold booleans of shape": lambda: losses.two_towers(a, b, mask=labels > 0),
        "pair_weight must hold finite numbers": lambda: losses.two_towers(a, b, pair_weight=-torch.ones(4)),
        "pair_weight must hold 4 floating": lambda: losses.two_towers(a, b, pair_weight=torch.ones(3)),
        "a and b must have the same shape": lambda: losses.two_towers(a, b[:3]),
        "tau must be a number or a floating-point 0-d": lambda: losses.two_towers(a, b, torch.ones(2)),
        "tau_beta must be a number > 0": lambda: losses.two_towers(a, b, 0.1, -1.0),
        "labels must hold 4": lambda: losses.supervised_contrastive(a, b, labels[:2]),
        "reduction must be": lambda: losses.supervised_contrastive(a, b, labels, reduction="sum"),  # pyright: ignore
    }
    for line, call in wrong.items():
        with pytest.raises(ValueError, match=line):
            call()


def test_anchors_without_positives_or_negatives_count_nothing() -> None:
    a, b = drawn(6, 6)
    same = torch.zeros(6, dtype=torch.long)
    alone = losses.two_towers(a, b, 0.1, ids=same)
    assert alone == 0
    assert all(not gradient.any() for gradient in torch.autograd.grad(alone, (a, b)))
    loss = losses.supervised_contrastive(a, None, torch.arange(6), 0.1)  # nobody has a positive
    assert loss == 0
    assert not torch.autograd.grad(loss, a)[0].any()
    some = torch.tensor([0, 0, 1, 2, 3, 3])
    each = losses.supervised_contrastive(a, None, some, 0.1, reduction="none")
    assert (each == 0).tolist() == [False, False, True, True, False, False]
    torch.testing.assert_close(losses.supervised_contrastive(a, None, some, 0.1), each.sum() / 4)


def test_autocast_changes_nothing() -> None:
    a, b = (x.detach().float().requires_grad_() for x in drawn(7, 10))
    labels, tau = torch.arange(10) % 3, torch.tensor(0.05, requires_grad=True)
    for call in (
        lambda: losses.two_towers(a, b, tau, 1.0, labels=labels),
        lambda: losses.supervised_contrastive(a, b, labels, tau, 1.0),
    ):
        expected = torch.autograd.grad(call(), (a, b, tau))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = torch.autograd.grad(call(), (a, b, tau))
        assert all(map(torch.equal, expected, found))


def test_a_second_derivative_is_refused() -> None:
    a, b = drawn(7, 10)
    for loss in (losses.two_towers(a, b, 0.1), losses.supervised_contrastive(a, b, torch.arange(10) % 3, 0.1)):
        (gradient,) = torch.autograd.grad(loss, a, create_graph=True)
        with pytest.raises(RuntimeError, match="no second derivative"):
            gradient.sum().backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(gradient.sum(), (a, b))


@pytest.mark.parametrize("both_views", [False, True])
def test_a_mask_of_equal_ids_is_these_ids(both_views: bool) -> None:
    a, b = drawn(5, 9)
    ids = torch.tensor([0, 1, 2, 0, 1, 3, 4, 4, 4])
    by_ids = losses.two_towers(a, b, 0.2, 1.0, ids=ids, both_views=both_views)
    by_mask = losses.two_towers(a, b, 0.2, 1.0, mask=ids[:, None] == ids, both_views=both_views)
    close(by_mask, by_ids, (a, b))


def test_a_mask_takes_whole_pairs_from_the_negatives_of_both_views() -> None:
    a, b = drawn(6, 5)
    mask = torch.zeros(5, 5, dtype=torch.bool)
    mask[0, 1] = True
    stats: dict[str, Tensor] = {}
    losses.two_towers(a, b, 0.2, mask=mask, both_views=True, stats=stats)
    x, y = (F.normalize(z.detach(), dim=1) / 0.2**0.5 for z in (a, b))
    for direction, (anchors, keys) in enumerate(((x, y), (y, x))):
        for i in range(5):
            left = [j for j in range(5) if j != i and (direction, i, j) not in ((0, 0, 1), (1, 1, 0))]
            negatives = torch.cat((keys[left] @ anchors[i], anchors[left] @ anchors[i])).exp().sum()
            W = negatives / (negatives + (keys[i] @ anchors[i]).exp())
            torch.testing.assert_close(stats["W"][direction, i], W)


def test_a_temperature_that_learning_has_thrown_out_of_bounds_can_still_be_read() -> None:
    criterion, (a, b) = losses.TwoTowersLoss(0.07), drawn(1, 4)
    assert criterion.logit_scale is not None
    with torch.no_grad():
        criterion.logit_scale.fill_(-1e6)
    assert criterion.tau == math.inf
    assert "tau=inf, learn_tau=True" in repr(criterion)
    with pytest.raises(ValueError, match=r"tau must be a number > 0 \(finite\), got inf"):
        criterion(a, b)


def test_a_learned_temperature_stays_in_float32_when_the_model_becomes_half() -> None:
    model = nn.ModuleDict({"head": nn.Linear(2, 2), "loss": losses.TwoTowersLoss(0.0712345)})
    criterion: Any = model["loss"]
    scale, before = criterion.logit_scale, criterion.logit_scale.detach().clone()
    criterion(*(x.detach().float() for x in drawn(0, 5))).backward()
    gradient = scale.grad.clone()
    for change in (nn.Module.half, nn.Module.bfloat16):
        change(model)
        assert criterion.logit_scale is scale, "an optimizer still has it"
        assert scale.dtype == scale.grad.dtype == torch.float32
        assert torch.equal(scale.detach(), before)
        assert torch.equal(scale.grad, gradient)
    assert model.double()["loss"].logit_scale.dtype == torch.float64


def test_two_losses_of_one_step_share_a_learned_temperature() -> None:
    (a, b), (c, d) = drawn(0, 6), drawn(1, 6)
    criterion = losses.TwoTowersLoss(0.5).double()
    assert criterion.logit_scale is not None
    (criterion(a, b) + criterion(c, d)).backward()
    expected = [losses.TwoTowersLoss(0.5).double() for _ in range(2)]
    for alone, pair in zip(expected, ((a, b), (c, d)), strict=True):
        alone(*pair).backward()
    first, second = (alone.logit_scale.grad for alone in expected)  # pyright: ignore
    assert criterion.logit_scale.grad is not None
    torch.testing.assert_close(criterion.logit_scale.grad, first + second)  # pyright: ignore


def test_the_lower_bound_of_a_learned_temperature_can_be_read_and_moved() -> None:
    criterion = losses.TwoTowersLoss(0.07, tau_min=0.02)
    assert (criterion.tau_min, criterion.learn_tau) == (0.02, True)
    criterion.tau_min = criterion.tau  # as read from its rounded logarithm
    criterion.tau_min = 0.05
    assert criterion.logit_scale is not None
    with torch.no_grad():
        criterion.logit_scale.fill_(-math.log(0.03))
    criterion(*(x.detach().float() for x in drawn(0, 5)))
    assert criterion.tau == pytest.approx(0.05)
    with pytest.raises(ValueError, match="tau must be at least tau_min"):
        criterion.tau_min = 0.2
    with pytest.raises(ValueError, match="tau_min must be a number > 0"):
        criterion.tau_min = -1.0
    with pytest.raises(AttributeError, match="learn_tau is chosen when the module is made"):
        criterion.learn_tau = False
    assert losses.TwoTowersLoss(0.07, learn_tau=False).learn_tau is False


def test_anchors_that_do_not_count_have_a_weight_of_0_in_the_statistics() -> None:
    a, b = drawn(3, 6)
    out = torch.tensor([False, True, False, False, True, False])
    stats: dict[str, Tensor] = {}
    losses.two_towers(a, b, 0.2, padding_mask=out, stats=stats)
    left: dict[str, Tensor] = {}
    losses.two_towers(a[~out], b[~out], 0.2, stats=left)
    for name in ("W", "r_pos"):
        assert (stats[name][:, out] == 0).all()
        torch.testing.assert_close(stats[name][:, ~out], left[name])
