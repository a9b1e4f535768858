"""Adapting a start: what is frozen does not move, rates are as declared, and what cannot be is refused."""

import copy
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import yaml
from local_starts import NETWORK, timm_folder
from trained_encoders import photos

from dualtemp.api import resume, train
from dualtemp.config import settings
from dualtemp.errors import UserError
from dualtemp.frameworks import FrameworkModule, build_framework
from dualtemp.models.backbones import build_backbone
from dualtemp.models.stages import frozen_modules, parameter_stages, split_backbone, stage_names
from dualtemp.optimizers import build_optimizer, set_lr
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.status import status_of
from dualtemp.runs.thresholds import clearly_below, clearly_past
from dualtemp.training.adaptation import Adaptation
from dualtemp.training.train_step import synchronized

__all__ = ["photos", "timm_folder"]  # fixtures

QUIET: dict[str, Any] = {"device": "cpu", "workers": 0, "threads": 1, "quiet": True, "page": False}
# Everything given: of what is not, a start of others gets what suits it.
ALL_LEARNS = {"freeze": 0, "freeze_batch_norm": False, "layer_decay": 1.0, "anchor": 0.0, "stop_below_start": False}
SMALL: dict[str, Any] = {**QUIET, **ALL_LEARNS, "batch": 8, "image_size": 40, "lr": 0.5, "epochs": 2}


def weights(path: Path, name: str = "backbone") -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(path / f"{name}.safetensors")


@pytest.mark.parametrize("method", ["simco", "moco", pytest.param("byol", marks=pytest.mark.slow)])
def test_frozen_stages_keep_weights_and_statistics_and_the_others_learn(
    method: str, photos: Path, timm_folder: Path, tmp_path: Path
) -> None:
    train(data=str(photos), init=str(timm_folder), out=tmp_path / "run", method=method, **{**SMALL, "freeze": 3})
    before, after = weights(tmp_path / "run", "start"), weights(tmp_path / "run")
    frozen = ("conv1", "bn1", "layer1", "layer2")
    for name, value in after.items():
        assert torch.equal(value, before[name]) == name.startswith(frozen), name


def test_frozen_batch_norm_keeps_its_statistics_while_its_weights_learn(
    photos: Path, timm_folder: Path, tmp_path: Path
) -> None:
    train(data=str(photos), init=str(timm_folder), out=tmp_path / "run", **{**SMALL, "freeze_batch_norm": True})
    before, after = weights(tmp_path / "run", "start"), weights(tmp_path / "run")
    for name, value in after.items():
        assert torch.equal(value, before[name]) == ("running" in name or "num_batches" in name), name


def test_what_a_framework_holds_in_eval_mode_stays_there_and_batch_norm_of_its_own_is_synchronized() -> None:
    chosen = settings({"data": "digits", "backbone": NETWORK, "image_size": 32})
    method, chosen = build_framework(chosen, 3, 10), chosen.model_copy(update={"warmup_heads": 1.0})
    teacher, norm = (
        torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4)).eval(),
        torch.nn.BatchNorm1d(4),
    )
    method.framework.teacher, method.framework.norm = teacher, norm
    method = FrameworkModule(method.framework)
    adaptation = Adaptation(chosen, method, 10)
    for step in (0, 10):
        adaptation.begin_step(step)
        assert not any(part.training for part in teacher.modules())
        assert norm.training
    assert all(part.training for part in method.framework.network.modules())
    assert synchronized(method).framework.norm is method.norm
    assert isinstance(method.framework.norm, torch.nn.SyncBatchNorm)


def test_nothing_of_the_encoder_moves_while_the_heads_warm_up(photos: Path, timm_folder: Path, tmp_path: Path) -> None:
    given = {**SMALL, "method": "byol", "epochs": 1}
    train(data=str(photos), init=str(timm_folder), out=tmp_path / "run", warmup_heads=1, **given)
    before, after = weights(tmp_path / "run", "start"), weights(tmp_path / "run")
    assert all(torch.equal(value, before[name]) for name, value in after.items())
    train(data=str(photos), init=str(timm_folder), out=tmp_path / "two", warmup_heads=0.5, **given)
    after = weights(tmp_path / "two")
    assert not any(torch.equal(value, before[name]) for name, value in after.items() if name.endswith("conv1.weight"))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "lars"])
def test_rates_fall_by_the_decay_from_stage_to_stage(optimizer: str) -> None:
    chosen = settings({"data": "digits", "backbone": "resnet_mini", "image_size": 8, "layer_decay": 0.5, "batch": 8})
    method = build_framework(chosen, 3, 10)
    built = build_optimizer(optimizer, method, 0.9, 5e-4, Adaptation(chosen, method, 4).rates())
    set_lr(built, 0.8)
    rates = {p: group["lr"] for group in built.param_groups for p in group["params"]}
    by_name = {name: rates[p] for name, p in method.named_parameters()}
    expected = {"conv1": 0.8 / 16, "bn1": 0.8 / 16, "layer1": 0.8 / 8, "layer2": 0.8 / 4, "layer3": 0.8 / 2}
    for name, rate in by_name.items():
        part = name.removeprefix("network.backbone.").split(".")[0]
        assert rate == pytest.approx(expected.get(part, 0.8)), name
    assert sum(len(group["params"]) for group in built.param_groups) == len(by_name)


@pytest.mark.parametrize(
    ("name", "size", "first", "count"),
    [("resnet_mini", 32, "conv1", 4), ("resnet18", 64, "conv1", 5), ("tf_efficientnet_lite0", 64, "conv_stem", 8)],
)
def test_a_network_is_split_where_its_stages_end(name: str, size: int, first: str, count: int) -> None:
    backbone = build_backbone(name, size, seed=0)
    names = stage_names(backbone)
    assert (names[0], len(names)) == (first, count)
    sample = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    for stages in range(1, count):
        split = split_backbone(backbone, stages, sample)
        assert split is not None
        left = {id(p) for p in split[1].parameters()}
        numbers = parameter_stages(backbone)
        assert left == {id(p) for n, p in backbone.named_parameters() if numbers[n] >= stages}
    assert backbone.training


def test_a_network_of_another_make_is_not_split() -> None:
    backbone = build_backbone("vit_tiny", 32, seed=0)
    assert len(stage_names(backbone)) == 13
    assert split_backbone(backbone, 3, torch.randn(1, 3, 32, 32)) is None


@pytest.mark.parametrize("freeze", [1, 3])  # 1: the frozen stages end with pooling, which has no parameters
def test_an_anchor_gives_the_same_whether_the_frozen_work_is_shared_or_not(
    freeze: int, photos: Path, timm_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**SMALL, "freeze": freeze, "anchor": 5.0, "epochs": 1, "freeze_batch_norm": True}
    train(data=str(photos), init=str(timm_folder), out=tmp_path / "shared", **given)
    monkeypatch.setattr("dualtemp.training.anchor.split_backbone", lambda *_: None)
    train(data=str(photos), init=str(timm_folder), out=tmp_path / "whole", **given)
    assert (tmp_path / "shared/backbone.safetensors").read_bytes() == (
        tmp_path / "whole/backbone.safetensors"
    ).read_bytes()


@pytest.mark.slow
def test_an_anchor_holds_the_encoder_near_its_start(photos: Path, timm_folder: Path, tmp_path: Path) -> None:
    given = {**SMALL, "lr": 0.05, "freeze_batch_norm": True}
    far = {}
    for anchor in (0.0, 100.0):
        run = tmp_path / f"anchor{anchor:g}"
        train(data=str(photos), init=str(timm_folder), out=run, **{**given, "anchor": anchor})
        before, after = weights(run, "start"), weights(run)
        far[anchor] = sum(float((after[n] - before[n]).float().norm()) for n in after if n.endswith("conv2.weight"))
    assert far[100.0] < far[0.0]


def test_chunks_and_an_anchor_learn_what_the_whole_batch_learns(
    photos: Path, timm_folder: Path, tmp_path: Path
) -> None:
    given = {**SMALL, "lr": 0.05, "freeze": 2, "freeze_batch_norm": True, "anchor": 3.0, "epochs": 1}
    train(data=str(photos), init=str(timm_folder), out=tmp_path / "whole", **given)
    train(data=str(photos), init=str(timm_folder), out=tmp_path / "chunks", chunk=2, **given)
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "chunks")
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_a_run_that_falls_below_its_start_stops_and_leaves_what_was_better(
    photos: Path, timm_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr("dualtemp.runs.kept_encoder.clearly_below", lambda metrics: metrics["epoch"] == 2)
    given = {**SMALL, "epochs": 4, "stop_below_start": True}
    last = train(data=str(photos), init=str(timm_folder), out=run, **given)
    assert (last["epoch"], last["stopped"]) == (2, True)
    assert {"held_out_knn_top1", "held_out_gained", "held_out_lost", "start_knn_top1"} <= last.keys()
    assert status_of(RunFolder(run)).word == "done"
    made = RunFolder(run).read_environment()
    assert made["held_out"] > 0
    assert last["step"] == 2 * ((made["train"]["images"] - made["held_out"]) // SMALL["batch"])
    kept = (run / "backbone.safetensors").read_bytes()
    assert resume(run, **QUIET) == last  # nothing goes on by itself
    assert (run / "backbone.safetensors").read_bytes() == kept
    one = tmp_path / "one"  # the first two epochs of the same schedule, without the stop
    monkeypatch.setattr("dualtemp.runs.kept_encoder.clearly_below", lambda metrics: False)
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["epochs"] == 4
    whole: list[bytes] = []

    def keep(trainer: Any) -> None:
        original(trainer)
        whole.append(trainer.run.backbone.read_bytes())

    from dualtemp.training.trainer import Trainer

    original = Trainer.save_encoder
    monkeypatch.setattr(Trainer, "save_encoder", keep)
    train(data=str(photos), init=str(timm_folder), out=one, **given)
    assert whole[1] == kept  # that of epoch 1: the first is the start itself
    assert len(whole) == 5


def test_a_run_goes_on_where_it_was_when_it_is_no_longer_to_stop(
    photos: Path, timm_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr("dualtemp.runs.kept_encoder.clearly_below", lambda metrics: metrics["epoch"] == 2)
    given = {**SMALL, "batch": 4, "epochs": 3, "stop_below_start": True}
    last = train(data=str(photos), init=str(timm_folder), out=run, **given)
    assert last["stopped"]
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("stop_below_start: true", "stop_below_start: false"))
    resume(run, **QUIET)
    resume(run, epochs=4, **QUIET)
    history = RunFolder(run).history()
    steps = history[0]["step"]
    assert [(line["epoch"], line["step"]) for line in history] == [(n, n * steps) for n in range(1, 5)]
    assert "held_out_lost" in history[-1], "what was held out stays held out"


def test_a_run_that_began_without_a_held_out_tenth_cannot_be_told_to_stop_by_it(
    photos: Path, timm_folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(data=str(photos), init=str(timm_folder), out=run, **{**SMALL, "epochs": 1})
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("stop_below_start: false", "stop_below_start: true"))
    with pytest.raises(UserError, match="stop_below_start is for a run that began with it"):
        resume(run, epochs=2, **QUIET)


@pytest.mark.parametrize(
    ("gained", "lost", "below"),
    [(0, 0, False), (5, 3, False), (3, 5, False), (0, 3, True), (2, 12, True), (10, 16, False), (10, 19, True)],
)
def test_a_fall_counts_beyond_chance(gained: int, lost: int, below: bool) -> None:
    assert clearly_below({"held_out_gained": gained, "held_out_lost": lost}) is below
    assert not clearly_below({})


def test_the_judge_is_sure_from_80_percent_on() -> None:
    assert not clearly_past({"judged_past": 0.79})
    assert clearly_past({"judged_past": 0.8})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"freeze": 5},
            r"freeze 5 leaves nothing to learn: .* has 5 stages \(conv1, layer1, .*\); give --freeze -4 to 4",
        ),
        ({"freeze": -5}, "freeze -5 leaves nothing frozen"),
        ({"freeze": "x"}, "freeze must be a whole number, got 'x'"),
        ({"layer_decay": 0}, "layer_decay must be a number above 0 and of at most 1, got 0"),
        ({"anchor": float("inf")}, "anchor must be"),
        ({"warmup_heads": 3.5}, "warmup_heads 3.5 is more than the 2 epochs"),
        ({"init": None, "freeze": 1}, "--freeze is for a run that begins from a start: give --init imagenet"),
        ({"init": "none", "anchor": 1.0}, "--anchor is for a run that begins from a start"),
        ({"labels": False, "stop_below_start": True}, "stop_below_start compares accuracies"),
    ],
)
def test_what_cannot_be_adapted_is_refused_in_one_line_and_leaves_nothing(
    given: dict[str, Any], said: str, photos: Path, timm_folder: Path, tmp_path: Path
) -> None:
    chosen = {"init": str(timm_folder), **SMALL, **given}
    if chosen["init"] in (None, "none"):
        chosen["backbone"] = NETWORK
    with pytest.raises(UserError, match=said):
        train(data=str(photos), out=tmp_path / "run", **chosen)
    assert not (tmp_path / "run").exists()


def test_a_backbone_that_does_not_tell_its_stages_is_refused() -> None:
    with pytest.raises(UserError, match="does not tell its stages"):
        parameter_stages(copy.deepcopy(torch.nn.Linear(2, 2)))


@pytest.mark.parametrize("method", ["simco", "moco"])
@pytest.mark.parametrize("freeze", [0, 2])
def test_autograd_keeps_nothing_of_frozen_stages_but_what_the_next_one_takes(method: str, freeze: int) -> None:
    values = {"data": "digits", "backbone": "resnet_mini", "image_size": 8, "batch": 8, "method": method}
    chosen = settings({**values, "freeze": freeze})
    framework: Any = build_framework(chosen, 3, 10)
    Adaptation(chosen, framework, 4)
    backbone = framework.network.backbone
    made: list[Any] = []  # alive, so that no later tensor takes their place in memory
    for module in frozen_modules(backbone, 2):
        for part in module.modules():
            part.register_forward_hook(lambda module, given, output: made.append(output))
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        views = torch.randn(2, 8, 3, 8, 8).unbind()
        framework(views, None, 0, torch.arange(8)).loss.backward()
    frozen = {output.data_ptr() for output in made}
    inside = frozen & {tensor.data_ptr() for tensor in kept}
    passes = {"simco": 2, "moco": 1}[method]
    assert len(made) > 4 * passes
    assert len(inside) == passes if freeze else len(inside) > 2 * passes
