import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dualtemp import losses
from dualtemp.losses.similarity_distillation import similarity_distillation
from dualtemp.losses.similarity_drift import similarity_drift

X, KEYS = torch.eye(4), torch.eye(4).flip(0)
TWO_VIEWS = [losses.dual_temperature, losses.nt_xent, losses.in_batch_weight]
DICTIONARY = [losses.info_nce, losses.equal_anchors, losses.simple]


@pytest.mark.parametrize("tau", [0.0, -0.1, math.nan, -math.inf, "warm", torch.tensor([0.1, 0.2])], ids=str)
def test_temperatures_that_are_not_positive_numbers_are_refused(tau: Any) -> None:
    for call in (
        lambda: losses.dual_temperature(X, X, tau, 1.0),
        lambda: losses.dual_temperature(X, X, 0.1, tau),
        lambda: losses.nt_xent(X, X, tau),
        lambda: losses.info_nce(X, X, KEYS, tau),
        lambda: losses.decomposed(X, X, KEYS, KEYS, tau),
        lambda: losses.decomposed(X, X, KEYS, KEYS, 0.1, tau),
        lambda: losses.equal_anchors(X, X, KEYS, tau),
        lambda: losses.in_batch_weight(X, X, tau),
        lambda: losses.cross_entropy(X, torch.arange(4), tau),
        lambda: losses.DualTemperatureLoss(0.1, tau),
        lambda: losses.InfoNCELoss(tau),
        lambda: losses.NTXentLoss(tau),
        lambda: losses.CrossEntropyLoss(tau_beta=tau),
    ):
        with pytest.raises(ValueError, match=r"tau(_alpha|_beta)? must be a number > 0"):
            call()


@pytest.mark.parametrize("tau", [1e-45, 1e-7, 1e39])
def test_temperatures_that_float32_cannot_compute_with_are_refused(tau: float) -> None:
    pairs = torch.nn.functional.normalize(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)))
    for call in (
        lambda: losses.dual_temperature(pairs, X[:, :3], tau),
        lambda: losses.nt_xent(pairs, pairs, tau),
        lambda: losses.supervised_contrastive(pairs, pairs, torch.zeros(4, dtype=torch.long), tau),
    ):
        with pytest.raises(ValueError, match=r"must be from 1e-06 to 1e\+30, got"):
            call()


@pytest.mark.parametrize("tau_alpha", [1e-6, 1e30])
def test_the_extreme_temperatures_give_finite_losses_and_gradients(tau_alpha: float) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(4, 3, generator=generator, requires_grad=True) for _ in range(2))
    loss = losses.dual_temperature(q, k, tau_alpha, 1.0)
    loss.backward()
    assert loss.isfinite()
    assert q.grad is not None
    assert q.grad.isfinite().all()


def test_true_is_no_temperature() -> None:
    with pytest.raises(ValueError, match="got True"):
        losses.nt_xent(X, X, True)


def test_a_vector_has_a_temperature_and_it_cannot_be_taken_away() -> None:
    criterion = losses.DualTemperatureLoss()
    with pytest.raises(ValueError, match=r"tau_alpha must be a number > 0 \(finite\), got None"):
        criterion.tau_alpha = None
    assert criterion.tau_alpha == 0.1
    with pytest.raises(ValueError, match=r"tau must be a number > 0 \(finite\), got None"):
        losses.nt_xent(X, X, None)  # pyright: ignore[reportArgumentType]


def test_the_vectors_temperature_must_be_finite_and_the_scalars_need_not() -> None:
    with pytest.raises(ValueError, match="tau_alpha must be a number > 0 \\(finite\\), got inf"):
        losses.dual_temperature(X, X, math.inf)
    assert losses.dual_temperature(X, X, 0.1, math.inf).isfinite()


def test_a_temperature_that_wants_to_be_learned_is_refused() -> None:
    with pytest.raises(ValueError, match="would not be learned"):
        losses.dual_temperature(X, X, torch.tensor(0.1, requires_grad=True))  # pyright: ignore


@pytest.mark.parametrize("loss", TWO_VIEWS)
def test_a_batch_of_one_pair_has_no_negatives(loss) -> None:
    with pytest.raises(ValueError, match="no negatives: the batch holds one pair"):
        loss(X[:1], X[:1])


@pytest.mark.parametrize("loss", DICTIONARY)
def test_an_empty_dictionary_has_no_negatives(loss) -> None:
    with pytest.raises(ValueError, match="no negatives: negatives is empty"):
        loss(X, X, KEYS[:0])
    with pytest.raises(ValueError, match="no negatives: scalar_keys is empty"):
        losses.decomposed(X, X, KEYS, KEYS[:0])


@given(
    shapes=st.tuples(*[st.lists(st.integers(0, 4), max_size=3)] * 3),
    loss=st.sampled_from(TWO_VIEWS + DICTIONARY + [losses.negative_cosine]),
)
def test_any_shapes_give_a_loss_or_one_clear_line(shapes: tuple[list[int], ...], loss) -> None:
    arguments = [torch.ones(shape) for shape in shapes][: 3 if loss in DICTIONARY else 2]
    try:
        said = None if loss(*arguments).isfinite().all() else "not finite"
    except ValueError as error:
        said = str(error)
    assert said is None or ("\n" not in said and said.split()[0] in ("q", "k", "p", "k_pos", "negatives", "no"))


def test_embeddings_must_be_floating_and_on_one_device() -> None:
    with pytest.raises(ValueError, match=r"q must be a floating-point \(N, D\) matrix, got torch.int64"):
        losses.dual_temperature(X.long(), X.long())
    with pytest.raises(ValueError, match="one device, got cpu and meta"):
        losses.dual_temperature(X, X.to("meta"))
    with pytest.raises(ValueError, match="one device, got cpu and meta"):
        losses.info_nce(X, X, KEYS.to("meta"))


@pytest.mark.parametrize(
    ("target", "wrong"),
    [(torch.arange(3), "4 class numbers"), (torch.ones(4), "4 class numbers"), (torch.ones(4, 1).long(), "4 class")],
)
def test_targets_must_be_a_class_number_per_anchor(target, wrong) -> None:
    with pytest.raises(ValueError, match=wrong):
        losses.cross_entropy(X, target)


def test_class_numbers_out_of_range_are_refused() -> None:
    for target in (torch.tensor([0, 1, 2, 4]), torch.tensor([0, 1, 2, -1])):
        with pytest.raises(ValueError, match="class numbers from 0 to 3"):
            losses.cross_entropy(X, target)


def test_an_unknown_reduction_is_refused() -> None:
    for call in (
        lambda: losses.dual_temperature(X, X, reduction="sum"),  # pyright: ignore
        lambda: losses.NTXentLoss(reduction="sum"),  # pyright: ignore
    ):
        with pytest.raises(ValueError, match="reduction must be 'mean' or 'none', got 'sum'"):
            call()


def test_a_weight_must_fit_the_anchors() -> None:
    with pytest.raises(ValueError, match=r"weight must be of shape \(4,\)"):
        losses.negative_cosine(X, X, torch.ones(4, 1))


def test_modules_are_the_functions_with_their_settings() -> None:
    g = torch.Generator().manual_seed(0)
    q, k, keys = (torch.randn(n, 5, generator=g) for n in (6, 6, 9))
    w, target = torch.rand(6, generator=g), torch.arange(6) % 5
    pairs = [
        (losses.InfoNCELoss(0.2)(q, k, keys), losses.info_nce(q, k, keys, 0.2)),
        (losses.NTXentLoss(0.2)(q, k), losses.nt_xent(q, k, 0.2)),
        (
            losses.DualTemperatureLoss(0.2, 2.0, both_directions=False, both_views=True)(q, k),
            losses.dual_temperature(q, k, 0.2, 2.0, both_directions=False, both_views=True),
        ),
        (losses.DecomposedLoss(0.2, 3.0)(q, k, keys, keys[:3]), losses.decomposed(q, k, keys, keys[:3], 0.2, 3.0)),
        (losses.EqualAnchorsLoss(0.2)(q, k, keys), losses.equal_anchors(q, k, keys, 0.2)),
        (losses.SimpleLoss()(q, k, keys), losses.simple(q, k, keys)),
        (losses.NegativeCosineLoss()(q, k, w), losses.negative_cosine(q, k, w)),
        (losses.CrossEntropyLoss(1.0, math.inf)(q, target), losses.cross_entropy(q, target, 1.0, math.inf)),
    ]
    for module, function in pairs:
        assert torch.equal(module, function)
    assert repr(losses.DualTemperatureLoss()).startswith("DualTemperatureLoss(tau_alpha=0.1, tau_beta=1.0")
    stats = {}
    losses.DualTemperatureLoss()(q, k, stats=stats)
    assert stats["W"].shape == (2, 6)


def test_settings_of_a_module_act_when_they_are_set_later_and_are_checked() -> None:
    g = torch.Generator().manual_seed(0)
    q, k, keys = (torch.randn(n, 5, generator=g) for n in (6, 6, 9))
    dual, one, cosine = losses.DualTemperatureLoss(), losses.InfoNCELoss(), losses.NegativeCosineLoss()
    dual.tau_alpha, dual.tau_beta, dual.both_directions = 5.0, 2.0, False
    one.tau, one.reduction = 0.3, "none"
    assert torch.equal(dual(q, k), losses.dual_temperature(q, k, 5.0, 2.0, both_directions=False))
    assert torch.equal(one(q, k, keys), losses.info_nce(q, k, keys, 0.3, reduction="none"))
    assert (dual.tau_alpha, dual.tau_beta, one.tau) == (5.0, 2.0, 0.3)
    assert "tau_alpha=5.0, tau_beta=2.0" in repr(dual)
    assert copy.deepcopy(dual).tau_alpha == 5.0

    with pytest.raises(ValueError, match="tau_alpha must be a number > 0"):
        dual.tau_alpha = -1.0
    with pytest.raises(ValueError, match="would not be learned"):
        dual.tau_beta = torch.tensor(0.1, requires_grad=True)
    with pytest.raises(ValueError, match="reduction must be"):
        dual.reduction = "sum"
    assert dual.tau_alpha == 5.0
    for module, name in ((dual, "tau"), (one, "tau_beta"), (cosine, "tau")):
        with pytest.raises(AttributeError, match=f"{type(module).__name__} has no {name}: its settings are"):
            setattr(module, name, 0.1)


def test_a_module_may_hold_other_things_than_settings() -> None:
    module = losses.DualTemperatureLoss()
    module.head, module.note = nn.Linear(2, 2), "x"
    module.temperature_log = nn.Parameter(torch.zeros(1))
    assert [name for name, _ in module.named_parameters()] == ["temperature_log", "head.weight", "head.bias"]
    with pytest.raises(AttributeError):
        module.nothing  # noqa: B018


@pytest.mark.parametrize("weight", ["sigmoid", "memory", "per_image"])
def test_an_unknown_way_to_gather_is_refused_whatever_the_weight(weight: str) -> None:
    q, k, index = torch.randn(4, 3), torch.randn(4, 3), torch.arange(4)
    images = None if weight == "sigmoid" else 4
    criterion = losses.DualTemperatureLoss(0.1, weight=weight, images=images)
    with pytest.raises(ValueError, match="gather must be False, True or 'ring', got 'rings'"):
        losses.dual_temperature(q, k, 0.1, weight=criterion.weigh, index=index, gather="rings")  # pyright: ignore
    with pytest.raises(ValueError, match="gather must be"):
        criterion.gather = "rings"
    with pytest.raises(ValueError, match="gather must be"):
        losses.DualTemperatureLoss(gather="rings")  # pyright: ignore


@pytest.mark.parametrize("gather", ["ring", "all", 2, None])
def test_a_loss_without_a_ring_refuses_one(gather: Any) -> None:
    for call in (
        lambda: losses.supervised_contrastive(X, None, torch.arange(4), gather=gather),
        lambda: losses.vicreg(X, X, gather=gather),
        lambda: losses.barlow_twins(X, X, gather=gather),
        lambda: similarity_distillation(X, X, X, gather=gather),
        lambda: similarity_drift(X, X, gather=gather),
    ):
        with pytest.raises(ValueError, match="gather must be False or True for this loss, got"):
            call()
    for kind in (losses.SupervisedContrastiveLoss, losses.VICRegLoss, losses.BarlowTwinsLoss):
        with pytest.raises(ValueError, match="gather must be False or True for this loss, got"):
            kind(gather=gather)
        criterion = kind()
        with pytest.raises(ValueError, match="gather must be False or True for this loss, got"):
            criterion.gather = gather


def test_embeddings_on_the_meta_device_have_a_loss_and_a_gradient_there() -> None:
    q, k = torch.randn(4, 3, device="meta", requires_grad=True), torch.randn(4, 3, device="meta")
    for loss in (
        losses.dual_temperature(q, k),
        losses.nt_xent(q, k, 0.001),
        losses.decomposed(q, k, k, q),
        losses.supervised_contrastive(q, None, torch.arange(4, device="meta")),
        losses.vicreg(q, k),
    ):
        (gradient,) = torch.autograd.grad(loss, q)
        assert (loss.device.type, loss.shape, gradient.shape) == ("meta", (), q.shape)


@pytest.mark.parametrize("tau", ["0.1", "1e-1", "low", None, torch.ones(2)])
def test_a_temperature_that_is_no_number_is_refused_by_its_name(tau: Any) -> None:
    q, k = torch.randn(4, 3), torch.randn(4, 3)
    for name, loss in (
        ("tau_alpha", losses.dual_temperature),
        ("tau", losses.in_batch_weight),
        ("tau", losses.two_towers),
        ("tau", losses.TwoTowersLoss),
    ):
        with pytest.raises(ValueError, match=f"^{name} must be a number"):
            loss(**{name: tau}) if isinstance(loss, type) else loss(q, k, tau)
    with pytest.raises(ValueError, match=r"^tau must be a number > 0 \(inf allowed\), got -1.0"):
        losses.in_batch_weight(q, k, -1.0)


@pytest.mark.parametrize("module", [losses.InfoNCELoss, losses.DecomposedLoss, losses.CrossEntropyLoss])
@pytest.mark.parametrize("weight", ["memory", losses.ImageMemory(4)])
def test_a_weight_for_in_batch_negatives_is_refused_when_a_module_without_them_is_made(module, weight) -> None:
    with pytest.raises(ValueError, match="are for in-batch negatives"):
        module(weight=weight)


def test_a_tau_beta_that_has_no_effect_is_refused_with_the_name_of_the_weight() -> None:
    with pytest.raises(ValueError, match=r"got 0\.5 with weight 'equal'"):
        losses.cross_entropy(torch.randn(2, 3), torch.tensor([0, 1]), 1.0, 0.5, weight="equal")


def test_the_weight_of_two_towers_is_checked_when_the_module_is_made() -> None:
    with pytest.raises(ValueError, match="weight must be one of sigmoid, equal, got 'memory'"):
        losses.TwoTowersLoss(weight="memory")
    with pytest.raises(ValueError, match="tau_beta is of weight 'sigmoid' alone"):
        losses.TwoTowersLoss(weight="equal", tau_beta=1.0)
    criterion = losses.TwoTowersLoss(weight="equal")
    with pytest.raises(ValueError, match="tau_beta is of weight 'sigmoid' alone"):
        criterion.tau_beta = 1.0
    assert criterion.tau_beta is None
