"""Each framework against its definition: encoder passes, loss, who receives a gradient, what follows a step."""

import copy
from typing import Any

import brute_force
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dualtemp import losses
from dualtemp.config import Settings, complete, settings
from dualtemp.frameworks import FrameworkModule, build_framework, framework_named, frameworks

N, SIZE = 8, 8


def complete_settings(method: str, **values: Any) -> Settings:
    given = {"data": "digits", "method": method, "backbone": "resnet_mini", "batch": N, **values}
    return complete(settings(given), image_size=SIZE)


def framework(method: str, **values: Any) -> Any:
    if method == "moco":
        values = {"dictionary_size": 32, **values}
    return build_framework(complete_settings(method, **values), channels=1, classes=10, images=N).train()


def batch(seed: int = 0) -> tuple[tuple[Tensor, Tensor], Tensor]:
    g = torch.Generator().manual_seed(seed)
    first, second = torch.randn(2, N, 1, SIZE, SIZE, generator=g)
    return (first, second), torch.randint(10, (N,), generator=g)


class Passes:
    """Counts passes through the backbones of a framework, with and without gradient."""

    def __init__(self, method: Any) -> None:
        self.query, self.key = 0, 0
        method.network.backbone.register_forward_hook(self._query)
        if hasattr(method, "key_network"):
            method.key_network.module.backbone.register_forward_hook(self._key)

    def _query(self, *_: Any) -> None:
        assert torch.is_grad_enabled()
        self.query += 1

    def _key(self, *_: Any) -> None:
        assert not torch.is_grad_enabled()
        self.key += 1


@pytest.mark.parametrize(
    ("method", "values", "query", "key"),
    [
        ("moco", {}, 1, 1),
        ("moco", {"symmetric": True}, 2, 2),
        ("moco", {"keys": "last", "dictionary_size": None}, 1, 1),
        ("moco", {"keys": "current", "dictionary_size": None}, 1, 1),
        ("simmoco", {}, 1, 1),
        ("simmoco", {"symmetric": True}, 2, 2),
        ("simmoco", {"both_views": True}, 1, 1),
        ("simco", {}, 2, 0),
        ("simclr", {}, 2, 0),
        ("byol", {}, 2, 2),
        ("byol", {"hardness_aware": True}, 2, 2),
        ("simsiam", {}, 2, 0),
        ("supervised", {}, 1, 0),
        ("vicreg", {}, 2, 0),
        ("barlow_twins", {}, 2, 0),
        ("distil", {}, 1, 0),
        ("moco", {"predictor": True, "symmetric": True}, 2, 2),
        ("simmoco", {"predictor": True}, 1, 1),
        ("simco", {"predictor": True}, 2, 0),
    ],
)
def test_a_step_makes_no_more_passes_than_its_framework_needs(method, values, query, key) -> None:
    made = framework(method, **values)
    passes = Passes(made)
    assert framework_named(method).passes(complete_settings(method, **values).options) == (query, key)
    views, labels = batch()
    made(views[: framework_named(method).views], labels, 0, torch.arange(N)).loss.backward()
    made.after_step()
    assert (passes.query, passes.key) == (query, key)


WITH_PREDICTOR = [(name, True) for name, kind in frameworks().items() if "predictor" in kind.Settings.model_fields]


@pytest.mark.parametrize(("method", "predictor"), [*((name, False) for name in frameworks()), *WITH_PREDICTOR])
def test_the_gradient_reaches_every_trainable_parameter_and_no_other(method: str, predictor: bool) -> None:
    made = framework(method, **({"predictor": True} if predictor else {}))
    assert not predictor or made.network.predictor is not None
    views, labels = batch()
    step = made(views, labels, 0, torch.arange(N))
    step.loss.backward()
    assert step.loss.ndim == 0
    assert step.features.shape == (N, 128)
    assert not step.features.requires_grad
    if method in ("vicreg", "barlow_twins", "distil"):
        assert step.stats == {}, "there are no anchors, and no weight of them"
        assert not framework_named(method).weighs_anchors(None)
    else:
        assert step.stats["W"].shape[-1] == N
    for name, p in made.named_parameters():
        assert p.requires_grad != name.startswith("key_network")
        assert (p.grad is not None and p.grad.isfinite().all()) == p.requires_grad, name


@pytest.mark.parametrize("method", ["moco", "simmoco", "simco"])
def test_batch_norm_in_the_projector_standardizes_what_its_activation_sees(method: str) -> None:
    made, (views, _) = framework(method, projector_batch_norm=True), batch()
    hidden = made.network.projector[:2](made.network.backbone(views[0]))
    torch.testing.assert_close(hidden.mean(0), torch.zeros(512), atol=1e-5, rtol=0)
    assert len(framework(method).network.projector) == 3, "the paper's has none"


def test_the_heads_of_simsiam_have_the_width_that_is_asked_for() -> None:
    def widths(made: Any) -> list[list[int]]:
        heads = (made.network.projector, made.network.predictor)
        return [[layer.out_features for layer in head if isinstance(layer, torch.nn.Linear)] for head in heads]

    assert widths(framework("simsiam", projector_width=64)) == [[64, 64, 64], [16, 64]]
    assert widths(framework("simsiam")) == [[2048, 2048, 2048], [512, 2048]], "as published"


def embeddings(made: Any, views: tuple[Tensor, ...]) -> list[Any]:
    return [made.network(view) for view in views]


def test_simco_is_dual_temperature_of_both_views() -> None:
    made, (views, _) = framework("simco", tau_alpha=0.2, tau_beta=2.0), batch()
    q, k = embeddings(made, views)
    expected = losses.dual_temperature(q.projection, k.projection, 0.2, 2.0)
    torch.testing.assert_close(made(views, None, 0).loss, expected)


def test_simclr_is_nt_xent_of_both_views() -> None:
    made, (views, _) = framework("simclr", tau_alpha=0.2), batch()
    q, k = embeddings(made, views)
    torch.testing.assert_close(made(views, None, 0).loss, losses.nt_xent(q.projection, k.projection, 0.2))


@pytest.mark.parametrize("symmetric", [False, True])
def test_simmoco_is_dual_temperature_against_momentum_keys(symmetric: bool) -> None:
    made, (views, _) = framework("simmoco", symmetric=symmetric), batch()
    q = embeddings(made, views)
    k = [made.key_network(view).projection for view in views]
    each = [
        losses.dual_temperature(q[i].projection, k[1 - i], 0.1, 1.0, both_directions=False)
        for i in range(1 + symmetric)
    ]
    torch.testing.assert_close(made(views, None, 0).loss, torch.stack(each).mean())


@pytest.mark.parametrize("symmetric", [False, True])
def test_moco_is_info_nce_against_its_dictionary(symmetric: bool) -> None:
    made, (views, _) = framework("moco", symmetric=symmetric), batch()
    q = embeddings(made, views)
    k = [made.key_network(view).projection for view in views]
    each = [losses.info_nce(q[i].projection, k[1 - i], made.dictionaries[i].keys, 0.1) for i in range(1 + symmetric)]
    torch.testing.assert_close(made(views, None, 0).loss, torch.stack(each).mean())
    made.after_step()
    for i, dictionary in enumerate(made.dictionaries):
        torch.testing.assert_close(dictionary.last(), F.normalize(k[1 - i], dim=1))


def test_moco_with_parts_of_its_dictionary_is_the_decomposed_loss_on_these_parts() -> None:
    made = framework(
        "moco", vector_size=8, vector_sampling="earliest", scalar_size=16, scalar_sampling="newest", tau_beta=0.5
    )
    (views, _), dictionary = batch(), made.dictionaries[0]
    dictionary.enqueue(torch.randn(20, 128, generator=torch.Generator().manual_seed(5)))
    q, k = made.network(views[0]).projection, made.key_network(views[1]).projection
    expected = losses.decomposed(q, k, dictionary.earliest(8), dictionary.newest(16), 0.1, 0.5)
    torch.testing.assert_close(made(views, None, 0).loss, expected)


def test_random_keys_are_a_function_of_seed_and_step() -> None:
    made, (views, _) = framework("moco", vector_size=8, vector_sampling="random"), batch()
    first, again, next_step = (made(views, None, step).loss.item() for step in (3, 3, 4))
    assert first == again
    assert first != next_step


def test_last_keys_are_those_of_the_step_before_and_current_keys_make_it_simmoco() -> None:
    last, (views, _) = framework("moco", keys="last", dictionary_size=None), batch()
    last(views, None, 0)
    last.after_step()
    torch.testing.assert_close(last.dictionaries[0].keys, last.dictionaries[0].last())
    current = framework("moco", keys="current", dictionary_size=None, tau_beta=1.0)
    torch.testing.assert_close(current(views, None, 0).loss, framework("simmoco")(views, None, 0).loss)


@pytest.mark.parametrize("hardness_aware", [False, True])
@pytest.mark.parametrize(("method", "computation"), [("simsiam", 1), ("byol", 1), ("byol", 2)])
def test_simsiam_and_byol_have_their_published_losses(method: str, computation: int, hardness_aware: bool) -> None:
    made = framework(method, hardness_aware=hardness_aware, tau_weight=0.3, computation=computation)
    views, _ = batch()
    first, second = embeddings(made, views)
    if method == "byol":
        targets = [made.key_network(view).projection for view in views]
    else:
        targets = [first.projection.detach(), second.projection.detach()]
    expected = torch.zeros(())
    for p, k in ((first.prediction, targets[1]), (second.prediction, targets[0])):
        w = losses.in_batch_weight(p, k, 0.3) if hardness_aware else torch.ones(N)
        if computation == 2:  # BYOL: squared distances of unit vectors, both halves summed
            half = (w * (F.normalize(p, dim=1) - F.normalize(k, dim=1)).square().sum(1)).mean()
        else:  # SimSiam: D / 2 + D / 2 of D = -cos; and what BYOL had before
            half = -(w * F.cosine_similarity(p, k)).mean() / 2
        expected = expected + half
    ours = made(views, None, 0).loss
    torch.testing.assert_close(ours, expected)
    for name, p in made.network.named_parameters():
        mine, theirs = (torch.autograd.grad(x, p, retain_graph=True)[0] for x in (ours, expected))
        torch.testing.assert_close(mine, theirs, msg=name, rtol=1e-3, atol=1e-5)


def test_byol_has_four_times_the_gradient_that_it_had_before() -> None:
    views, _ = batch()
    for hardness_aware in (False, True):
        gradients = []
        for computation in (1, 2):
            made = framework("byol", hardness_aware=hardness_aware, computation=computation)
            made(views, None, 0).loss.backward()
            gradients.append([p.grad for p in made.network.parameters()])
        for before, now in zip(*gradients, strict=True):
            torch.testing.assert_close(now, 4 * before, rtol=1e-3, atol=1e-5)


def test_supervised_is_cross_entropy() -> None:
    made, (views, labels) = framework("supervised"), batch()
    logits = made.network(views[0]).projection
    assert logits.shape == (N, 10)
    torch.testing.assert_close(made(views, labels, 0).loss, F.cross_entropy(logits, labels))
    noisy = framework("supervised", tau_beta=float("inf"))
    expected = losses.cross_entropy(logits, labels, 1.0, float("inf"))
    torch.testing.assert_close(noisy(views, labels, 0).loss, expected)


def test_vicreg_and_barlow_twins_have_their_published_losses_of_the_projections() -> None:
    views, _ = batch()
    made = framework("vicreg", invariance=3.0, variance=2.0, covariance=0.5, projector_width=16)
    q, k = (each.projection for each in embeddings(made, views))
    assert q.shape == (N, 16)
    torch.testing.assert_close(made(views, None, 0).loss, brute_force.vicreg(q, k, 3.0, 2.0, 0.5).float())
    made = framework("barlow_twins", redundancy=0.1, loss_scale=0.5, projector_width=16)
    q, k = (each.projection for each in embeddings(made, views))
    torch.testing.assert_close(made(views, None, 0).loss, (brute_force.barlow_twins(q, k, 0.1) / 2).float())


def info_nce_in_batch(q: Tensor, k: Tensor, tau: float) -> Tensor:
    """MoCo v3's contrastive loss: the keys of the batch, the positive among them."""
    return F.cross_entropy(F.normalize(q, dim=1) @ F.normalize(k, dim=1).T / tau, torch.arange(len(q)))


def test_symmetric_simmoco_with_a_predictor_and_one_temperature_is_moco_v3() -> None:
    made, (views, _) = framework("simmoco", symmetric=True, predictor=True, tau_beta="tied", tau_alpha=0.2), batch()
    q = [each.prediction for each in embeddings(made, views)]
    k = [made.key_network(view).projection for view in views]
    expected = (info_nce_in_batch(q[0], k[1], 0.2) + info_nce_in_batch(q[1], k[0], 0.2)) / 2
    torch.testing.assert_close(made(views, None, 0).loss, expected)
    assert not any("predictor" in name for name, _ in made.key_network.named_parameters())


def test_simco_with_a_predictor_contrasts_predictions_with_projections_and_teaches_both() -> None:
    made, (views, _) = framework("simco", predictor=True, tau_beta="tied", tau_alpha=0.2), batch()
    first, second = embeddings(made, views)
    expected = info_nce_in_batch(first.prediction, second.projection, 0.2)
    expected = (expected + info_nce_in_batch(second.prediction, first.projection, 0.2)) / 2
    ours = made(views, None, 0).loss
    torch.testing.assert_close(ours, expected)
    for name, p in made.network.named_parameters():
        mine, theirs = (torch.autograd.grad(x, p, retain_graph=True)[0] for x in (ours, expected))
        torch.testing.assert_close(mine, theirs, msg=name, rtol=1e-3, atol=1e-5)


def test_moco_with_a_predictor_contrasts_predictions_with_its_dictionary() -> None:
    made, (views, _) = framework("moco", predictor=True), batch()
    q, k = made.network(views[0]).prediction, made.key_network(views[1]).projection
    expected = losses.info_nce(q, k, made.dictionaries[0].keys, 0.1)
    torch.testing.assert_close(made(views, None, 0).loss, expected)


@pytest.mark.parametrize("method", ["moco", "simmoco", "simco"])
def test_a_predictor_leaves_the_other_weights_as_they_begin(method: str) -> None:
    without, with_one = framework(method).state_dict(), framework(method, predictor=True).state_dict()
    assert all(torch.equal(value, with_one[name]) for name, value in without.items())
    assert {name.split(".")[1] for name in set(with_one) - set(without)} == {"predictor"}


@pytest.mark.parametrize("method", ["moco", "simmoco", "byol"])
def test_the_key_encoder_follows_after_the_step(method: str) -> None:
    made, (views, _) = framework(method, key_momentum=0.9), batch()
    keys = list(made.key_network.parameters())
    before = [p.clone() for p in keys]
    for p in made.network.parameters():
        p.data.add_(1.0)
    made(views, None, 0)
    assert all(torch.equal(p, q) for p, q in zip(keys, before, strict=True))
    made.after_step()
    for now, old, source in zip(keys, before, made.network.key_part().parameters(), strict=True):
        torch.testing.assert_close(now, 0.9 * old + 0.1 * source)


def test_batch_norm_sees_one_view_at_a_time_and_the_key_encoder_has_statistics_of_its_own() -> None:
    made, (views, _) = framework("simmoco"), batch()
    made(views, None, 0)
    query, key = (
        next(m for m in net.modules() if isinstance(m, nn.BatchNorm2d)) for net in (made.network, made.key_network)
    )
    assert int(query.num_batches_tracked or 0) == int(key.num_batches_tracked or 0) == 1
    assert not torch.equal(query.running_mean, key.running_mean)  # pyright: ignore


def test_weights_are_a_function_of_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = framework("byol", seed=3).state_dict()
    torch.manual_seed(2)
    again, other = framework("byol", seed=3).state_dict(), framework("byol", seed=4).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_distil_compares_the_similarities_of_its_projections_with_those_of_the_teachers_centered_features() -> None:
    made, (views, _) = framework("distil", tau_teacher=0.3, tau_student=0.2), batch()
    features = torch.randn(N, 5, generator=torch.Generator().manual_seed(3)) + 4
    made.framework.teacher.load(features)
    index = torch.tensor([3, 1, 0, 2, 7, 6, 5, 4])
    z = made.network(views[0]).projection
    centered = (features - features.mean(0))[index]
    expected = brute_force.similarity_distillation(z, z, centered, 0.3, 0.2).mean()
    torch.testing.assert_close(made(views[:1], None, 0, index).loss, expected.float())
    assert not any(name.startswith("teacher") for name in made.state_dict()), "kept in a file of its own"


@pytest.mark.parametrize("kind", [object, nn.Module])
def test_a_parameter_that_a_framework_holds_itself_learns_and_is_saved(kind: type) -> None:
    class Learned(kind):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.log_scale = nn.Linear(3, 2), nn.Parameter(torch.zeros(()))

    made: Any = FrameworkModule(Learned())  # pyright: ignore[reportArgumentType]
    assert {name for name, _ in made.named_parameters()} == {"network.weight", "network.bias", "log_scale"}
    assert set(made.state_dict()) == {"network.weight", "network.bias", "log_scale"}
    assert made.double().framework.log_scale.dtype == torch.float64


def test_buffers_of_a_framework_that_is_a_module_are_saved_moved_and_copied() -> None:
    class Centered(torch.nn.Module):
        center: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.network = torch.nn.Linear(2, 2)
            self.register_buffer("center", torch.zeros(2))
            self.register_buffer("scratch", torch.zeros(2), persistent=False)

    made, other = (FrameworkModule(Centered()) for _ in range(2))  # pyright: ignore[reportArgumentType]
    made.framework.center += 3
    assert set(made.state_dict()) == {"network.weight", "network.bias", "center"}
    copied = copy.deepcopy(made)
    copied.framework.center += 1
    assert made.framework.center.tolist() == [3, 3]
    assert copied.state_dict()["center"].tolist() == [4, 4]
    other.load_state_dict(made.state_dict())
    assert other.framework.center.tolist() == [3, 3]
    other.to(torch.float64)
    assert other.framework.center.dtype == other.framework.scratch.dtype == torch.float64
