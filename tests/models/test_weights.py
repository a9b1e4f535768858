import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from torch import Tensor, nn

from dualtemp.errors import UserError
from dualtemp.models import build_backbone, initialize, load_weights, save_backbone
from dualtemp.runs.checkpoint import Checkpoint, save
from dualtemp.torchvision_operators import declare_missing_operators

declare_missing_operators()

import torchvision  # noqa: E402


def mini(seed: int) -> nn.Module:
    return build_backbone("resnet_mini", 32, seed=seed)


def same(a: nn.Module, b: nn.Module) -> bool:
    theirs = b.state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in a.state_dict().items())


class RunsCode:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self.command,)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_backbone_comes_back_to_the_bit_with_its_metadata(tmp_path: Path, memory_format: torch.memory_format) -> None:
    path = tmp_path / "backbone.safetensors"
    source = mini(0).to(memory_format=memory_format)  # pyright: ignore[reportCallIssue]
    source(torch.randn(4, 3, 32, 32))
    save_backbone(path, source, {"backbone": "resnet_mini"})
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt", "backbone": "resnet_mini"}
    assert {name: value.shape for name, value in load_weights(path).items()} == {
        name: value.shape for name, value in source.state_dict().items()
    }
    for where in (path, tmp_path):  # the file, and the run folder that holds it
        other = mini(1)
        assert not same(other, source)
        initialize(other, where)
        assert same(other, source)
    assert os.listdir(tmp_path) == ["backbone.safetensors"]


def test_tied_weights_are_written_under_both_names(tmp_path: Path) -> None:
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    save_backbone(tmp_path / "tied.safetensors", tied)
    assert sorted(load_weights(tmp_path / "tied.safetensors")) == ["0.bias", "0.weight", "1.bias", "1.weight"]


@pytest.mark.parametrize("prefix", ["", "module.", "backbone.", "encoder.", "module.encoder_q.", "model.backbone."])
def test_known_wrappings_are_taken_off(tmp_path: Path, prefix: str) -> None:
    source, other = mini(0), mini(1)
    state = {prefix + name: value for name, value in source.state_dict().items()}
    if prefix:
        state |= {"queue": torch.zeros(3), "projector.0.weight": torch.zeros(2, 2)}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "checkpoint.pth")
    initialize(other, tmp_path / "checkpoint.pth")
    assert same(other, source)


def test_of_two_encoders_in_one_file_the_first_is_taken(tmp_path: Path) -> None:
    query, key, other = mini(0), mini(1), mini(2)
    state = {f"encoder_q.{name}": value for name, value in query.state_dict().items()}
    state |= {f"encoder_k.{name}": value for name, value in key.state_dict().items()}
    torch.save(state, tmp_path / "moco.pt")
    initialize(other, tmp_path / "moco.pt")
    assert same(other, query)


def test_a_torchvision_resnet_is_taken_without_its_classifier(tmp_path: Path) -> None:
    torch.manual_seed(3)
    source = torchvision.models.resnet18()
    torch.save(source.state_dict(), tmp_path / "resnet18.pth")
    backbone = build_backbone("resnet18", 64, seed=0)
    initialize(backbone, tmp_path / "resnet18.pth")
    source.fc = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(backbone.eval()(x), source.eval()(x), atol=1e-6, rtol=1e-5)


def without(state: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key: value for key, value in state.items() if key != name}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: without(s, "layer1.0.conv1.weight"), "it lacks layer1.0.conv1.weight)"),
        (lambda s: s | {"layer9.weight": torch.zeros(1)}, "it has layer9.weight)"),
        (
            lambda s: s | {"conv1.weight": torch.zeros(8, 3, 7, 7)},
            "conv1.weight is (8, 3, 7, 7) in the file, (",
        ),
        (
            lambda s: {"something.weight": torch.zeros(1)},
            "(0 of 60 tensors fit; it lacks conv1.weight; it lacks bn1.weight; it lacks bn1.bias)",
        ),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_changed(tmp_path: Path, change: Any, said: str) -> None:
    torch.save(change(mini(0).state_dict()), tmp_path / "weights.pt")
    backbone = mini(1)
    with pytest.raises(UserError) as error:
        initialize(backbone, tmp_path / "weights.pt")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert same(backbone, mini(1))


def test_counters_of_batch_norm_may_be_missing(tmp_path: Path) -> None:
    state = {name: value for name, value in mini(0).state_dict().items() if "num_batches" not in name}
    torch.save(state, tmp_path / "old.pt")
    backbone = mini(1)
    initialize(backbone, tmp_path / "old.pt")
    assert same(backbone, mini(0))


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_file_that_would_run_code_is_refused_and_runs_none(tmp_path: Path, wrapped: bool) -> None:
    trace = tmp_path / "it ran"
    evil = {"conv1.weight": RunsCode(f"touch '{trace}'")}
    if wrapped:
        torch.save(evil, tmp_path / "evil.pt")
    else:
        (tmp_path / "evil.pt").write_bytes(pickle.dumps(evil, protocol=2))
    with pytest.raises(UserError, match="refused, because it is damaged or holds more than tensors"):
        load_weights(tmp_path / "evil.pt")
    assert not trace.exists()
    torch.load(tmp_path / "evil.pt", weights_only=False) if wrapped else pickle.loads(
        (tmp_path / "evil.pt").read_bytes()
    )
    assert trace.exists()  # the file was armed


def test_unusable_files_are_one_line_each(tmp_path: Path) -> None:
    save_backbone(tmp_path / "cut.safetensors", mini(0))
    os.truncate(tmp_path / "cut.safetensors", 5000)
    (tmp_path / "noise.pt").write_bytes(os.urandom(200))
    (tmp_path / "empty.pt").touch()
    (tmp_path / "empty.safetensors").touch()
    (tmp_path / "weights.h5").touch()
    torch.save({"epoch": 3}, tmp_path / "nothing.pt")
    torch.save([torch.zeros(1)], tmp_path / "list.pt")
    (tmp_path / "run").mkdir()
    for name, said in {
        "cut.safetensors": "not a whole safetensors file",
        "empty.safetensors": "not a whole safetensors file",
        "noise.pt": "damaged",
        "empty.pt": "damaged",
        "weights.h5": "must be .safetensors",
        "nothing.pt": "holds no state dict",
        "list.pt": "holds no state dict",
        "run": "no backbone.safetensors in this folder",
        "absent.pt": "no such weights file",
    }.items():
        with pytest.raises(UserError, match=said) as error:
            load_weights(tmp_path / name)
        assert "\n" not in str(error.value)
        assert name in str(error.value)


def test_a_checkpoint_in_place_of_its_run_is_told_apart_from_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    path = save(tmp_path / "run" / "checkpoints", Checkpoint(done=8))
    with pytest.raises(UserError) as refused:
        load_weights(path)
    said = f"{path}: a checkpoint, from which a run resumes; give the run's folder, {tmp_path}/run"
    assert str(refused.value) == said


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "backbone.safetensors"
    save_backbone(path, mini(0))
    before = path.read_bytes()
    with pytest.raises(Exception, match=r"str|metadata|argument"):
        save_backbone(path, mini(1), {"epoch": 3})  # pyright: ignore[reportArgumentType]
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["backbone.safetensors"]
