"""The weight of an anchor: what each choice is, by identities, brute force and other libraries; and its mistakes."""

import math
from typing import Any

import brute_force
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dualtemp import losses
from dualtemp.losses import AdaptiveTemperature, ImageMemory, ImageTemperatures
from dualtemp.losses.weights import equal
from dualtemp.torchvision_operators import declare_missing_operators

TAU = st.one_of(st.just(0.01), st.floats(0.01, 0.05), st.floats(0.05, 10))


def pairs(N: int = 9, D: int = 6, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Two views that resemble each other, as leaves."""
    g = torch.Generator().manual_seed(seed)
    image, *noise = (torch.randn(N, D, generator=g, dtype=torch.float64) for _ in range(3))
    q, k = (image + x for x in noise)
    return q.to(dtype).requires_grad_(), k.to(dtype).requires_grad_()


def gradients(loss: Tensor, *leaves: Tensor) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, leaves, retain_graph=True)])


def log_odds(q: Tensor, k: Tensor, tau: float, both_views: bool) -> Tensor:
    """d (2, N) as it is written, with gradient."""
    sides = brute_force.in_batch(q, k, both_views)
    return torch.stack([torch.log(brute_force.odds(*side, tau)) for side in sides])


def test_equal_is_dcl_flat_nce_and_macl_at_a_fixed_temperature() -> None:
    q, k = pairs()
    ours = losses.dual_temperature(q, k, 0.1, weight="equal", both_views=True)
    d = log_odds(q, k, 0.1, both_views=True)
    p_pos = torch.sigmoid(-d)
    expected = gradients(ours, q, k)
    torch.testing.assert_close(ours, d.mean())  # DCL's value too
    torch.testing.assert_close(gradients(d.mean(), q, k), expected)
    torch.testing.assert_close(gradients(torch.exp(d - d.detach()).mean(), q, k), expected)  # FlatNCE
    macl = (1 / (1 - p_pos)).detach() * -torch.log(p_pos)
    torch.testing.assert_close(gradients(macl.mean(), q, k), expected)


def test_equal_is_lightlys_dcl_and_with_an_adaptive_temperature_its_macl() -> None:
    declare_missing_operators()
    lightly = pytest.importorskip("lightly.loss")
    from lightly.loss.macl_loss import MACLLoss

    q, k = pairs()
    dcl = lightly.DCLLoss(temperature=0.2)(q, k)
    for ours in (losses.nt_xent(q, k, 0.2, weight="equal"), losses.NTXentLoss(0.2, weight="equal")(q, k)):
        torch.testing.assert_close(ours, dcl)
        torch.testing.assert_close(gradients(ours, q, k), gradients(dcl, q, k))
    for gain, target in ((0.5, 0.0), (0.3, 0.7)):
        ours = losses.nt_xent(q, k, AdaptiveTemperature(0.2, gain, target), weight="equal")
        macl = MACLLoss(temperature=0.2, alpha=gain, A_0=target)(q, k)
        torch.testing.assert_close(gradients(ours, q, k), gradients(macl, q, k), rtol=1e-6, atol=1e-7)  # its eps


@pytest.mark.parametrize("both_views", [False, True])
def test_an_infinite_tau_beta_is_equal_times_the_share_of_negatives(both_views: bool) -> None:
    q, k = pairs()
    infinite = losses.dual_temperature(q, k, 0.1, math.inf, both_views=both_views)
    equal = losses.dual_temperature(q, k, 0.1, weight="equal", both_views=both_views)
    M = 8 * (1 + both_views)
    torch.testing.assert_close(gradients(infinite, q, k), gradients(equal, q, k) * M / (M + 1))


def test_sigmoid_is_the_default_of_every_loss() -> None:
    q, k = pairs()
    keys, target = torch.randn(20, 6, dtype=torch.float64), torch.arange(9) % 6
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (losses.info_nce, (q, k, keys)),
        (losses.nt_xent, (q, k)),
        (losses.dual_temperature, (q, k)),
        (losses.decomposed, (q, k, keys, keys[:7])),
        (losses.cross_entropy, (q, target)),
    ]
    for loss, arguments in calls:
        assert torch.equal(loss(*arguments), loss(*arguments, weight="sigmoid"))


def test_equal_with_a_dictionary_is_d_and_has_the_gradient_of_equal_anchors() -> None:
    q, k = pairs()
    keys = torch.randn(20, 6, dtype=torch.float64)
    ours = losses.info_nce(q, k, keys, 0.2, weight="equal", reduction="none")
    torch.testing.assert_close(ours, torch.log(brute_force.odds(*brute_force.with_dictionary(q, k, keys), 0.2)))
    expected = gradients(losses.equal_anchors(q, k, keys, 0.2), q, k)
    torch.testing.assert_close(gradients(ours.mean(), q, k), expected)
    decomposed = losses.decomposed(q, k, keys, keys[:3], 0.2, weight="equal")
    torch.testing.assert_close(gradients(decomposed, q, k), expected)
    torch.testing.assert_close(decomposed, losses.equal_anchors(q, k, keys, 0.2))


def test_equal_cross_entropy_is_the_log_odds_of_the_other_classes() -> None:
    logits = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    target = torch.arange(7) % 5
    others = ~F.one_hot(target, 5).bool()
    d = logits[others].view(7, 4).logsumexp(1) - logits[~others]
    ours = losses.cross_entropy(logits, target, weight="equal")
    torch.testing.assert_close(ours, d.mean())
    torch.testing.assert_close(gradients(ours, logits), gradients(d.mean(), logits))


def test_memory_at_gamma_1_and_at_an_images_first_step_weighs_all_anchors_the_same() -> None:
    q, k = pairs()
    equal = losses.dual_temperature(q, k, 0.1, weight="equal")
    memory, index = ImageMemory(20, gamma=1.0), torch.arange(9) * 2
    for _ in range(3):
        loss = losses.dual_temperature(q, k, 0.1, weight=memory, index=index)
        torch.testing.assert_close(loss, equal - math.log(8))
        torch.testing.assert_close(gradients(loss, q, k), gradients(equal, q, k))
    first = losses.dual_temperature(q, k, 0.1, weight=ImageMemory(20, gamma=0.3), index=index)
    torch.testing.assert_close(gradients(first, q, k), gradients(equal, q, k))


def test_images_whose_temperatures_cannot_move_are_sogclr_and_their_value_has_rho_more() -> None:
    index = torch.arange(9)
    still, memory = ImageTemperatures(9, 0.6, tau_lr=0.0, rho=0.2), ImageMemory(9, 0.6)
    for seed in range(3):
        q, k = pairs(seed=seed)
        one = losses.dual_temperature(q, k, 0.1, weight=still, index=index)
        other = losses.dual_temperature(q, k, 0.1, weight=memory, index=index)
        torch.testing.assert_close(one, other + 0.2)
        torch.testing.assert_close(gradients(one, q, k), gradients(other, q, k))


@pytest.mark.parametrize("kind", ["memory", "per_image"])
@given(
    seed=st.integers(0, 2**31),
    N=st.integers(2, 10),
    D=st.integers(1, 8),
    tau=TAU,
    gamma=st.floats(0.05, 1),
    both_directions=st.booleans(),
    both_views=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
@settings(max_examples=25)
def test_weights_kept_per_image_against_plain_averages(
    kind, seed, N, D, tau, gamma, both_directions, both_views, dtype
) -> None:
    images, bounds = 2 * N, (tau / 2, tau * 3) if kind == "per_image" else None
    extra: dict[str, Any] = {}
    if bounds is not None:
        extra = {"rho": 0.3, "tau_min": bounds[0], "tau_max": bounds[1], "tau_lr": tau / 10, "tau_momentum": 0.4}
    make = ImageTemperatures if kind == "per_image" else ImageMemory
    weight = make(
        images, gamma, 1 + both_directions, **extra
    ).double()  # so that averages are as precise as the brute's
    brute = brute_force.Averages(gamma, tau, extra.get("rho", 0.0), bounds)
    lowest = tau if bounds is None else bounds[0]
    eps = torch.finfo(dtype).eps
    for visit in range(3):
        q, k = pairs(N, D, seed + visit, dtype)
        index = torch.randperm(images, generator=torch.Generator().manual_seed(seed + visit))[:N]
        value = losses.dual_temperature(
            q,
            k,
            tau,
            weight=weight,
            index=index,
            both_directions=both_directions,
            both_views=both_views,
            reduction="none",
        )
        precise = [x.detach().double().requires_grad_() for x in (q, k)]
        sides = brute_force.in_batch(precise[0], precise[1], both_views)[: 1 + both_directions]
        expected = brute.step(sides, index.tolist(), extra.get("tau_lr", 0.0), extra.get("tau_momentum", 0.0))
        assert value.isfinite().all()
        tolerance = 200 * eps * (1 + 1 / lowest) * (1 + 1 / lowest)
        torch.testing.assert_close(value.double(), expected, rtol=tolerance, atol=tolerance)
        ours, reference = gradients(value.sum(), q, k).double(), gradients(expected.sum(), *precise)
        scale = 1 + reference.abs().max().item() + 1 / lowest
        assert (ours - reference).abs().max().item() <= tolerance * scale * 10
    for (side, image), u in brute.u.items():
        if u > 1e-300:
            assert weight.log_u[side, image].item() == pytest.approx(math.log(u), abs=1e4 * eps * (1 + 1 / lowest))
    for (side, image), moved in brute.tau.items():
        assert isinstance(weight, ImageTemperatures)
        assert weight.tau[side, image].item() == pytest.approx(moved, abs=1e4 * eps * (1 + 1 / lowest) * tau)


@pytest.mark.parametrize("kind", [ImageMemory, ImageTemperatures])
def test_weights_kept_per_image_are_those_of_libauc(kind: type[ImageMemory]) -> None:
    peer = pytest.importorskip("libauc.losses.contrastive")
    own = kind is ImageTemperatures
    bounds = {"tau_min": 0.05, "tau_max": 0.7, "rho": 0.3} if own else {}
    theirs = peer.GCLoss_v2(
        N=20, tau=0.1, gamma=0.7, temperature_scheme="individual_learnable" if own else "global_constant", **bounds
    )
    for name, numbers in vars(theirs).items():
        if isinstance(numbers, Tensor):
            setattr(theirs, name, numbers.double())
    weight, index = kind(20, 0.7).double(), torch.arange(9) * 2
    for visit in range(3):
        theirs.adjust_gamma(visit)
        q, k = (F.normalize(x.detach()).requires_grad_() for x in pairs(seed=visit))
        ours = losses.dual_temperature(q, k, 0.1, weight=weight, index=index, normalize=False)
        # Theirs is a sum over the 8 negatives, in units of similarity.
        expected = gradients(theirs(q, k, index)[0], q, k) / (8 * 0.1)
        torch.testing.assert_close(gradients(ours, q, k), expected)


@pytest.mark.parametrize("weight", ["sigmoid", "equal"])
@given(tau=st.floats(0.02, 2), gain=st.floats(0, 0.5), target=st.floats(0, 0.9), seed=st.integers(0, 99))
@settings(max_examples=12)
def test_an_adaptive_temperature_is_the_temperature_that_it_comes_to(weight, tau, gain, target, seed) -> None:
    q, k = pairs(seed=seed)
    adaptive = AdaptiveTemperature(tau, gain, target)
    now = tau * (1 + gain * (F.cosine_similarity(q, k).mean().item() - target))
    cases: list[dict[str, Any]] = [{}, {"both_directions": False}, {"both_views": True}]
    for options in cases:
        ours = losses.dual_temperature(q, k, adaptive, weight=weight, **options)
        expected = losses.dual_temperature(q, k, now, weight=weight, **options)
        torch.testing.assert_close(ours, expected)
        torch.testing.assert_close(gradients(ours, q, k), gradients(expected, q, k), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(losses.nt_xent(q, k, adaptive), losses.nt_xent(q, k, now))


def test_an_adaptive_temperature_that_is_given_twice_ties_both() -> None:
    (q, k), adaptive = pairs(seed=1), AdaptiveTemperature(0.1, 0.6, 0.2)
    now = 0.1 * (1 + 0.6 * (F.cosine_similarity(q, k).mean().item() - 0.2))
    for ours in (losses.dual_temperature, losses.DualTemperatureLoss):
        if ours is losses.DualTemperatureLoss:
            found = losses.DualTemperatureLoss(adaptive, AdaptiveTemperature(0.1, 0.6, 0.2))(q, k)
        else:
            found = losses.dual_temperature(q, k, adaptive, adaptive)
        expected = losses.dual_temperature(q, k, now, now)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(gradients(found, q, k), gradients(expected, q, k))
    said = "tau_beta must be a number, or the same AdaptiveTemperature as tau_alpha"
    for alpha in (0.1, AdaptiveTemperature(0.2)):
        with pytest.raises(ValueError, match=said):
            losses.dual_temperature(q, k, alpha, adaptive)
        with pytest.raises(ValueError, match=said):
            losses.DualTemperatureLoss(alpha, adaptive)


@pytest.mark.parametrize("both_directions", [False, True])
@pytest.mark.parametrize("name", ["equal", "memory", "per_image"])
def test_stats_are_those_of_the_weight_that_acts(name: str, both_directions: bool) -> None:
    index = torch.arange(9)
    kept: dict[str, Any] = {} if name == "equal" else {"images": 9}
    criterion = losses.DualTemperatureLoss(0.1, weight=name, both_directions=both_directions, **kept)
    criterion(*pairs(seed=1), index=index)
    (q, k), stats = pairs(), {}
    criterion(q, k, stats, index=index)
    shape = (2, 9) if both_directions else (9,)
    assert all(x.shape == shape and not x.requires_grad for x in stats.values())
    torch.testing.assert_close(stats["r_pos"], stats["W"] / stats["W"].sum(-1, keepdim=True))
    if name == "equal":
        assert (stats["W"] == 1).all()
    else:
        assert stats["W"].std() > 0.01
    if name != "per_image":
        d = log_odds(q, k, 0.1, both_views=False)
        torch.testing.assert_close(stats["p_pos"], torch.sigmoid(-(d if both_directions else d[0])).detach())


def test_tau_beta_beside_another_weight_is_refused_also_when_it_is_set_later() -> None:
    q, k = pairs()
    keys = torch.randn(5, 6)
    memory = ImageMemory(9)
    calls: list[Any] = [
        lambda: losses.dual_temperature(q, k, 0.1, 1.0, weight="equal"),
        lambda: losses.dual_temperature(q, k, 0.1, 1.0, weight=memory, index=torch.arange(9)),
        lambda: losses.decomposed(q, k, keys, keys, 0.1, 1.0, weight="equal"),
        lambda: losses.cross_entropy(q, torch.arange(9) % 6, 1.0, 1.0, weight="equal"),
        lambda: losses.DualTemperatureLoss(0.1, 1.0, weight="equal"),
        lambda: losses.DualTemperatureLoss(0.1, 1.0, weight="per_image", images=9),
        lambda: losses.DecomposedLoss(0.1, 1.0, weight="equal"),
        lambda: setattr(losses.DualTemperatureLoss(weight="equal"), "tau_beta", 2.0),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"tau_beta is of weight 'sigmoid' alone, got \d.0 with weight '\w+'"):
            call()
    assert losses.DualTemperatureLoss().tau_beta == 1.0
    assert losses.DualTemperatureLoss(weight="equal").tau_beta is None


class Recorded:
    """A weight of one's own that writes down what it is given."""

    images, has_tau_beta = 0, False

    def __init__(self) -> None:
        self.given: list[tuple[Tensor | None, float]] = []

    def temperatures(self, *_: object) -> None: ...

    def weigh(self, odds: Any, index: Tensor | None = None, tau_alpha: float = 1.0, gather: bool = False) -> Any:
        self.given.append((index, tau_alpha))
        return equal(odds)


def test_a_weight_of_ones_own_is_given_the_same_in_batches_of_any_kind() -> None:
    (q, k), index = pairs(), torch.arange(9)
    for both_views in (False, True):
        weight: Any = Recorded()
        losses.dual_temperature(q, k, 0.2, None, weight=weight, index=index, both_views=both_views)
        ((given, tau_alpha),) = weight.given
        assert given is index
        assert tau_alpha == 0.2


def test_a_weight_that_cannot_be_is_one_line() -> None:
    q, k = pairs()
    keys, memory = torch.randn(5, 6), ImageMemory(9)
    mistakes: list[tuple[Any, str]] = [
        (
            lambda: losses.dual_temperature(q, k, weight="sum"),
            "weight must be one of sigmoid, equal, memory, per_image",
        ),
        (lambda: losses.DualTemperatureLoss(weight="sum"), "weight must be one of"),
        (lambda: losses.dual_temperature(q, k, weight="memory"), r"give it weight=ImageMemory\(images=...\)"),
        (lambda: losses.nt_xent(q, k, weight="per_image"), r"weight=ImageTemperatures\(images=...\)"),
        (lambda: losses.info_nce(q, k, keys, weight="memory"), "are for in-batch negatives"),
        (lambda: losses.InfoNCELoss(weight=memory)(q, k, keys), "are for in-batch negatives"),
        (lambda: losses.decomposed(q, k, keys, keys, weight="per_image"), "are for in-batch negatives"),
        (lambda: losses.DualTemperatureLoss(weight="memory"), "weight 'memory' needs images"),
        (lambda: losses.DualTemperatureLoss(images=9), "images is for weights 'memory' and 'per_image'"),
        (lambda: losses.DualTemperatureLoss(weight="memory", images=0), "images must be the number of images"),
        (lambda: ImageMemory(9, gamma=0.0), "gamma must be a number above 0 and at most 1, got 0.0"),
        (lambda: setattr(memory, "gamma", math.nan), "gamma must be a number above 0 and at most 1, got nan"),
        (lambda: ImageMemory(9, directions=3), "directions must be 1 or 2, got 3"),
        (lambda: losses.TwoTowersLoss(tau=0.001), "tau must be at least tau_min"),
        (lambda: setattr(losses.TwoTowersLoss(), "tau", 0.001), "tau must be at least tau_min"),
        (lambda: ImageTemperatures(9, tau_min=0.5, tau_max=0.1), "0 < tau_min <= tau_max < inf is needed"),
        (lambda: ImageTemperatures(9, rho=-1.0), "rho >= 0"),
        (
            lambda: losses.DualTemperatureLoss(1.0, weight="per_image", images=9)(q, k, index=torch.arange(9)),
            "tau_alpha, where the temperatures of images start, must be from 0.05 to 0.7, got 1.0",
        ),
        (
            lambda: losses.nt_xent(q, k, weight=ImageMemory(9, directions=1), index=torch.arange(9)),
            "ImageMemory was made for one: give it directions=2",
        ),
        (
            lambda: losses.nt_xent(q, k, AdaptiveTemperature(), weight=ImageTemperatures(9), index=torch.arange(9)),
            "tau must be a number where each image has a temperature of its own",
        ),
    ]
    for call, said in mistakes:
        with pytest.raises(ValueError, match=said):
            call()
    with pytest.raises(AttributeError, match="weight is chosen when the module is made"):
        losses.DualTemperatureLoss().weight = "equal"


@pytest.mark.parametrize("kind", ["memory", "per_image"])
@pytest.mark.parametrize(
    ("index", "said"),
    [
        (None, r"index is missing: .*\(9,\), from 0 to 19"),
        (torch.arange(9) + 12, "index must hold numbers from 0 to 19, got 12 to 20"),
        (torch.arange(9) - 1, "index must hold numbers from 0 to 19, got -1 to 7"),
        (torch.arange(8), "index must hold 9 whole numbers, got torch.int64 \\(8,\\)"),
        (torch.arange(9)[None], "index must hold 9 whole numbers"),
        (torch.arange(9.0), "index must hold 9 whole numbers, got torch.float32"),
        (torch.ones(9, dtype=torch.bool), "index must hold 9 whole numbers, got torch.bool"),
    ],
)
def test_a_wrong_index_is_one_line_and_nothing_is_written(kind: str, index: Tensor | None, said: str) -> None:
    q, k = pairs()
    criterion = losses.DualTemperatureLoss(weight=kind, images=20)
    before = {name: numbers.clone() for name, numbers in criterion.state_dict().items()}
    with pytest.raises(ValueError, match=said):
        criterion(q, k, index=index)
    assert all(torch.equal(numbers, before[name]) for name, numbers in criterion.state_dict().items())


def test_a_weight_that_is_no_weight_is_one_line() -> None:
    q, k = pairs()
    mistakes: list[tuple[Any, str]] = [
        (ImageMemory, "got the class ImageMemory"),
        (3, "got a int"),
        (None, "got None"),
        (["memory"], "got a list"),
    ]
    for weight, said in mistakes:
        for call in (
            lambda weight=weight: losses.dual_temperature(q, k, weight=weight),
            lambda weight=weight: losses.DualTemperatureLoss(weight=weight),
            lambda weight=weight: losses.info_nce(q, k, torch.randn(5, 6), weight=weight),
        ):
            with pytest.raises(ValueError, match=f"or an ImageMemory or ImageTemperatures object, {said}"):
                call()
