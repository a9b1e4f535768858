"""Frameworks with anchors: their weights and temperatures are those of the losses, step by step."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor

from dualtemp import losses
from dualtemp.config import complete, from_yaml, settings, to_yaml
from dualtemp.errors import UserError
from dualtemp.frameworks import build_framework, framework_named
from dualtemp.losses import AdaptiveTemperature, ImageMemory, ImageTemperatures

N, IMAGES = 8, 40
KINDS: dict[str, Any] = {"memory": ImageMemory, "per_image": ImageTemperatures}


def framework(method: str, **values: Any) -> Any:
    given = {"data": "digits", "method": method, "backbone": "resnet_mini", "batch": N, "epochs": 6, **values}
    return build_framework(complete(settings(given), 8), channels=1, classes=10, images=IMAGES).train()


def batch(seed: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    g = torch.Generator().manual_seed(seed)
    first, second = torch.randn(2, N, 1, 8, 8, generator=g)
    return (first, second), torch.randperm(IMAGES, generator=g)[:N]


@pytest.mark.parametrize("weight", ["equal", "memory", "per_image"])
@pytest.mark.parametrize("method", ["simco", "simclr", "simmoco", "moco"])
def test_a_framework_weighs_its_anchors_as_the_loss_does(method: str, weight: str) -> None:
    two_ways = method in ("simmoco", "moco")
    given: dict[str, Any] = {"keys": "current"} if method == "moco" else {}
    given |= {"symmetric": True} if two_ways else {}
    gamma = {} if weight == "equal" else {"gamma": 0.6}
    made = framework(method, weight=weight, **gamma, **given)
    directions = 1 if two_ways else 2
    kept = ["equal"] * 2 if weight == "equal" else [KINDS[weight](IMAGES, 0.6, directions) for _ in range(2)]
    for step in range(3):
        views, index = batch(step % 2)
        q = [made.network(view).projection for view in views]
        if two_ways:
            k = [made.key_network(view).projection for view in views]
            each = [
                losses.dual_temperature(q[i], k[1 - i], weight=kept[i], index=index, both_directions=False)
                for i in range(2)
            ]
            expected = (each[0] + each[1]) / 2
        else:
            loss = losses.nt_xent if method == "simclr" else losses.dual_temperature
            expected = loss(q[0], q[1], weight=kept[0], index=index)
        found = made(views, None, step, index)
        torch.testing.assert_close(found.loss, expected)
        assert found.stats["W"].shape == ((N,) if two_ways else (2, N))
    memories = [name for name in made.state_dict() if name.endswith("log_u")]
    assert len(memories) == (0 if weight == "equal" else 1 + two_ways)


def test_a_predictor_makes_two_one_way_losses_each_with_a_memory_of_its_own() -> None:
    made = framework("simco", predictor=True, weight="memory")
    memories = [ImageMemory(IMAGES, directions=1) for _ in range(2)]
    for step in range(2):
        views, index = batch(step)
        a, b = (made.network(view) for view in views)
        ways = ((a.prediction, b.projection), (b.prediction, a.projection))
        each = [
            losses.dual_temperature(q, k, weight=memory, index=index, both_directions=False)
            for (q, k), memory in zip(ways, memories, strict=True)
        ]
        torch.testing.assert_close(made(views, None, step, index).loss, (each[0] + each[1]) / 2)


def test_mocos_dictionary_with_equal_weights_is_dcl_over_its_keys() -> None:
    made, (views, _) = framework("moco", weight="equal", dictionary_size=32), batch(0)
    q, k = made.network(views[0]).projection, made.key_network(views[1]).projection
    expected = losses.info_nce(q, k, made.framework.dictionary.keys, weight="equal")
    torch.testing.assert_close(made(views, None, 0).loss, expected)


def test_what_is_kept_per_image_is_in_the_state_and_weights_without_memory_leave_it_as_it_was() -> None:
    plain, memory = framework("simco"), framework("simco", weight="memory")
    assert set(memory.state_dict()) - set(plain.state_dict()) == {"anchors.memories.0.log_u"}
    assert memory.state_dict()["anchors.memories.0.log_u"].shape == (2, IMAGES)
    assert [name for name, _ in memory.named_parameters()] == [name for name, _ in plain.named_parameters()]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"temperature_schedule": "linear", "tau_alpha_end": 0.4}, {0: (0.1, 1.0), 15: (0.25, 1.0), 30: (0.4, 1.0)}),
        (
            {"temperature_schedule": "cosine", "tau_alpha_end": 0.4, "tau_beta_end": 3.0, "temperature_period": 2},
            {0: (0.1, 1.0), 5: (0.4, 3.0), 10: (0.1, 1.0), 15: (0.4, 3.0)},
        ),
        (
            {"temperature_schedule": "cosine", "tau_alpha_end": 0.4, "tau_beta": "tied"},
            {0: (0.1, 0.1), 15: (0.4, 0.4), 30: (0.1, 0.1)},
        ),
    ],
)
def test_a_schedule_follows_the_steps_of_the_run(given: dict[str, Any], expected: dict[int, Any]) -> None:
    made, (views, _) = framework("simco", **given), batch(0)  # 6 epochs of 5 steps
    q, k = (made.network(view).projection for view in views)
    for step, (alpha, beta) in expected.items():
        torch.testing.assert_close(made(views, None, step).loss, losses.dual_temperature(q, k, alpha, beta))


def test_a_schedule_may_begin_at_the_lowest_temperature_of_an_image() -> None:
    given = {"weight": "per_image", "tau_alpha": 0.05, "tau_alpha_end": 0.2, "tau_min": 0.05}
    made, (views, index) = framework("simco", temperature_schedule="cosine", **given), batch(0)
    q, k = (made.network(view).projection for view in views)
    expected = losses.dual_temperature(q, k, 0.05, weight=ImageTemperatures(IMAGES, tau_min=0.05), index=index)
    torch.testing.assert_close(made(views, None, 0, index).loss, expected)


def test_an_adaptive_temperature_is_that_of_the_loss() -> None:
    adaptive = {"temperature_schedule": "adaptive", "temperature_gain": 0.3, "temperature_target": 0.2}
    made, (views, _) = framework("simclr", weight="equal", **adaptive), batch(0)
    q, k = (made.network(view).projection for view in views)
    expected = losses.nt_xent(q, k, AdaptiveTemperature(0.1, 0.3, 0.2), weight="equal")
    torch.testing.assert_close(made(views, None, 0).loss, expected)


@pytest.mark.parametrize("method", ["simco", "simmoco", "moco"])
def test_a_tau_beta_that_is_tied_to_an_adaptive_tau_alpha_is_where_that_is(method: str) -> None:
    given: dict[str, Any] = {"temperature_schedule": "adaptive", "temperature_gain": 0.6, "tau_beta": "tied"}
    given |= {"keys": "current"} if method == "moco" else {}
    both, (views, _) = method == "simco", batch(0)
    loss: dict[int, Tensor] = {}
    for computation in (1, 2):
        made = framework(method, computation=computation, **given)
        encode = made.network if both else made.key_network
        q, k = made.network(views[0]).projection.double(), encode(views[1]).projection.double()
        now = 0.1 * (1 + 0.6 * F.cosine_similarity(q, k).mean().item())
        beta = now if computation == 2 else 0.1
        expected = losses.dual_temperature(q, k, now, beta, both_directions=both)
        loss[computation] = made(views, None, 0).loss
        torch.testing.assert_close(loss[computation], expected.float())
    assert abs(loss[2] - loss[1]) > 0.01 * loss[2]
    torch.testing.assert_close(framework(method, **given)(views, None, 0).loss, loss[2])


def test_only_settings_that_a_version_has_changed_have_it() -> None:
    adaptive, ways = {"temperature_schedule": "adaptive"}, {"keys": "current"}
    for method, given, version in (
        ("simco", {}, 1),
        ("simco", {"tau_beta": "tied"}, 1),
        ("simco", adaptive, 1),
        ("simco", adaptive | {"weight": "equal", "tau_beta": 1.0}, 1),
        ("simco", adaptive | {"tau_beta": "tied"}, 2),
        ("simmoco", adaptive | {"tau_beta": "tied"}, 2),
        ("moco", {}, 1),
        ("moco", adaptive | ways, 2),
        ("moco", adaptive | ways | {"weight": "equal"}, 1),
        ("simclr", adaptive, 1),
        ("byol", {}, 2),
    ):
        chosen = complete(settings({"data": "digits", "method": method, **given}), 8)
        assert chosen.computation == version, (method, given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"weight": "equal", "tau_beta": 2.0}, "tau_beta does not apply to weight 'equal': it needs weight 'sigmoid'"),
        ({"weight": "memory", "rho": 1.0}, "rho does not apply to weight 'memory': it needs weight 'per_image'"),
        ({"gamma": 0.5}, "gamma does not apply to weight 'sigmoid': it needs weight 'memory' or 'per_image'"),
        ({"weight": "memry"}, "no weight is called 'memry': did you mean 'memory'?"),
        ({"tau_alpha_end": 1.0}, "tau_alpha_end does not apply to temperature_schedule 'constant'"),
        ({"method": "byol", "weight": "equal"}, "weight does not apply to byol"),
        ({"method": "simclr", "tau_beta_end": 1.0}, "tau_beta_end does not apply to simclr"),
        ({"weight": "memory", "gamma": 0.0}, "gamma must be a number above 0 and of at most 1, got 0.0"),
        ({"method": "moco", "weight": "equal", "scalar_size": 9}, "scalar_size does not apply to weight 'equal'"),
    ],
)
def test_a_setting_that_would_do_nothing_is_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        settings({"data": "digits", **given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"method": "moco", "weight": "memory"},
            "weight 'memory' is for in-batch negatives, not for MoCo's dictionary",
        ),
        ({"method": "moco", "weight": "per_image", "keys": "last"}, "weight 'per_image' is for in-batch negatives"),
        ({"method": "moco", "temperature_schedule": "adaptive"}, "'adaptive' is for in-batch negatives"),
        ({"temperature_schedule": "cosine"}, "temperature_schedule 'cosine' needs tau_alpha_end or tau_beta_end"),
        (
            {"temperature_schedule": "linear", "tau_beta": "inf", "tau_beta_end": 1.0},
            "tau_beta_end needs a finite tau_beta to start from, not inf",
        ),
        ({"weight": "per_image", "tau_alpha": 1.0}, "tau_alpha 1 is not from tau_min 0.05 to tau_max 0.7"),
        ({"weight": "per_image", "temperature_schedule": "adaptive"}, "weight 'per_image' has temperatures of its own"),
        ({"temperature_schedule": "adaptive", "temperature_gain": 1.0}, "the temperature would reach 0"),
    ],
)
def test_what_cannot_be_together_is_one_line(given: dict[str, Any], said: str) -> None:
    assert said in settings({"data": "digits", **given}).options.contradiction()


def test_a_config_of_before_there_were_weights_is_still_that_of_a_run(tmp_path: Path) -> None:
    chosen = complete(settings({"data": "digits", "method": "moco"}), 8)
    older = yaml.safe_load(to_yaml(chosen))
    later = framework_named("moco").Settings.added_later
    assert {"weight", "gamma", "temperature_schedule", "tau_alpha_end"} <= later
    assert "tau_beta" not in later
    older = {name: value for name, value in older.items() if name not in {*later, "computation"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(older))
    assert settings(from_yaml(tmp_path / "config.yaml")).computation == 1
    assert settings(from_yaml(tmp_path / "config.yaml")).options == chosen.options


@pytest.mark.parametrize("given", [{}, {"predictor": True}, {"method": "simmoco", "symmetric": True}], ids=str)
def test_a_matched_step_has_the_mean_weight_of_one_temperature(given: dict[str, Any]) -> None:
    """Each of its losses is that of two temperatures times mean W(tau_alpha) / mean W(tau_beta)."""
    method = given.get("method", "simco")
    given = {name: value for name, value in given.items() if name != "method"}
    made, (views, _) = framework(method, match_step=True, **given), batch(0)
    one_way = bool(given)
    a, b = (made.network(view) for view in views)
    keys = (
        [made.key_network(view).projection for view in views] if method == "simmoco" else [a.projection, b.projection]
    )
    pairs = [(a.prediction, keys[1]), (b.prediction, keys[0])] if one_way else [(a.projection, keys[1])]
    expected = []
    for q, k in pairs:
        similarity = F.normalize(q, dim=1).double() @ F.normalize(k, dim=1).double().T
        weights = {tau: [] for tau in (0.1, 1.0)}
        for s in [similarity] if one_way else [similarity, similarity.T]:
            for tau, found in weights.items():
                e = torch.exp(s / tau)
                found.append(1 - e.diagonal() / e.sum(1))
        ratio = torch.cat(weights[0.1]).mean() / torch.cat(weights[1.0]).mean()
        expected.append(ratio.float() * losses.dual_temperature(q, k, 0.1, 1.0, both_directions=not one_way))
    torch.testing.assert_close(made(views, None, 0).loss, sum(expected) / len(expected))


def test_a_matched_step_is_for_the_weight_of_two_temperatures() -> None:
    with pytest.raises(UserError, match="match_step does not apply to weight 'equal'"):
        settings({"data": "digits", "weight": "equal", "match_step": True})


@pytest.mark.parametrize(
    "values", [{"temperature_gain": 0.999999}, {"tau_alpha": 1e-6}, {"temperature_target": 0.99999}]
)
def test_an_adaptive_temperature_that_float32_could_not_carry_is_refused(values: dict[str, float]) -> None:
    chosen = settings({"data": "digits", "temperature_schedule": "adaptive", **values})
    assert "tau_alpha could fall to" in chosen.options.contradiction()
    assert settings({"data": "digits", "temperature_schedule": "adaptive"}).options.contradiction() == ""
