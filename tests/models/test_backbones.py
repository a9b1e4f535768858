import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from dualtemp.errors import UserError
from dualtemp.models import ResNetMini, build_backbone, describe_backbone
from dualtemp.torchvision_operators import declare_missing_operators

declare_missing_operators()

import timm  # noqa: E402
import torchvision  # noqa: E402


def images(n: int, channels: int, size: int) -> torch.Tensor:
    return torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(size))


def randomised(model: nn.Module) -> nn.Module:
    """Every parameter and statistic away from its initial value: blocks that start as identities would hide errors."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                value.add_(0.1 * torch.rand(value.shape, generator=generator))
                if name.endswith("running_var"):
                    value.abs_()
    return model.eval()


def built_by_recipe(recipe: dict[str, Any]) -> nn.Module:
    names: dict[str, Any] = {}
    exec(recipe["python"], names)
    return names["model"]


@pytest.mark.parametrize(
    ("name", "size", "num_features"),
    [
        ("resnet18", 32, 512),
        ("resnet18", 96, 512),
        ("resnet50", 32, 2048),
        ("vit_tiny", 32, 192),
        ("vit_tiny", 100, 192),  # not a multiple of its patches
        ("vit_tiny", 224, 192),
        ("swin_tiny", 32, 768),
        ("swin_tiny", 96, 768),
        ("resnet_mini", 8, 128),
        ("resnet_mini", 28, 128),
        ("resnet_mini", 96, 128),
        ("resnet_mini", 224, 128),
        ("resnet34", 32, 512),
        ("mobilenetv3_small_100", 64, 1024),  # a layer between pooling and classifier
        ("vit_tiny_patch16_224", 64, 192),  # a timm name with a grid that must be told the size
    ],
)
def test_a_backbone_gives_a_feature_vector_per_image(name: str, size: int, num_features: int) -> None:
    model = build_backbone(name, size, seed=0)
    assert model.training
    assert model.num_features == num_features
    with torch.no_grad():
        assert model.eval()(images(2, 3, size)).shape == (2, num_features)


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny", "resnet_mini"])
@pytest.mark.parametrize("channels", [1, 4])
def test_images_may_be_grey_or_have_four_channels(name: str, channels: int) -> None:
    model = build_backbone(name, 32, channels, seed=0).eval()
    with torch.no_grad():
        assert model(images(2, channels, 32)).shape == (2, model.num_features)


@pytest.mark.parametrize(
    ("name", "size", "arguments"),
    [
        ("resnet18", 64, {}),
        ("vit_tiny", 32, {"img_size": 32, "patch_size": 4}),
        ("swin_tiny", 32, {"img_size": 32, "patch_size": 2, "window_size": 4}),
    ],
)
def test_weights_load_strictly_into_plain_timm_and_give_the_same_features(
    name: str, size: int, arguments: dict[str, Any]
) -> None:
    full = {"vit_tiny": "vit_tiny_patch16_224", "swin_tiny": "swin_tiny_patch4_window7_224"}.get(name, name)
    plain = timm.create_model(full, num_classes=0, **arguments)
    ours = randomised(build_backbone(name, size, seed=0))
    plain.load_state_dict(ours.state_dict(), strict=True)
    x = images(2, 3, size)
    with torch.no_grad():
        torch.testing.assert_close(plain.eval()(x), ours(x), atol=1e-6, rtol=1e-6)


def test_weights_of_a_small_image_resnet_load_into_torchvision_with_the_stem_replaced() -> None:
    ours = randomised(build_backbone("resnet18", 32, seed=0))
    plain = torchvision.models.resnet18()
    plain.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    plain.maxpool = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    plain.fc = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    plain.load_state_dict(ours.state_dict(), strict=True)
    x = images(2, 3, 32)
    with torch.no_grad():
        torch.testing.assert_close(plain.eval()(x), ours(x), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "size"), [("resnet18", 32), ("resnet18", 96), ("vit_tiny", 30), ("resnet_mini", 32), ("resnet10t", 32)]
)
def test_the_recipe_survives_json_and_builds_the_same_module_without_us(name: str, size: int) -> None:
    recipe = json.loads(json.dumps(describe_backbone(name, size, 1)))
    again, ours = built_by_recipe(recipe), randomised(build_backbone(name, size, 1, seed=0))
    again.load_state_dict(ours.state_dict(), strict=True)
    x = images(2, 1, size)
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(x), ours(x), atol=1e-6, rtol=1e-6)
    assert recipe["num_features"] == ours.num_features
    assert bool(recipe["replaced"]) == (name == "resnet18" and size < 64)


def test_below_64_px_a_resnet_keeps_the_resolution_in_its_stem() -> None:
    seen: list[int] = []
    for size in (32, 63, 64):
        model = build_backbone("resnet18", size, seed=0).eval()
        model.get_submodule("layer1").register_forward_pre_hook(lambda _, x: seen.append(x[0].shape[-1]))
        with torch.no_grad():
            model(images(1, 3, size))
    assert seen == [32, 63, 16]


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny", "swin_tiny", "resnet_mini"])
def test_the_gradient_reaches_every_parameter(name: str) -> None:
    model = randomised(build_backbone(name, 32, seed=0)).train()
    model(images(4, 3, 32)).square().sum().backward()
    without = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert without == []


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny", "resnet_mini"])
def test_the_seed_alone_decides_the_weights_and_the_global_generator_stays(name: str) -> None:
    torch.manual_seed(5)
    first = build_backbone(name, 32, seed=1).state_dict()
    state = torch.get_rng_state()
    again, other = build_backbone(name, 32, seed=1).state_dict(), build_backbone(name, 32, seed=2).state_dict()
    describe_backbone(name, 32)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)


def test_building_leaves_batch_norm_statistics_untouched() -> None:
    state = build_backbone("resnet18", 32, seed=0).state_dict()
    assert all(not v.any() for k, v in state.items() if k.endswith(("running_mean", "num_batches_tracked")))


@pytest.mark.parametrize("size", [8, 15, 16, 63, 64, 97])
def test_the_mini_stem_divides_the_image_by_1_2_or_4(size: int) -> None:
    model = ResNetMini(size)
    stride = 1 if size < 16 else 2 if size < 64 else 4
    assert model.conv1(images(1, 3, size)).shape[-1] == -(-size // stride)


def test_the_mini_resnet_is_torchvisions_blocks_in_a_row() -> None:
    ours = randomised(build_backbone("resnet_mini", 32, seed=0))
    plain = torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1])
    plain.conv1, plain.bn1 = nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16)
    plain.maxpool = plain.layer4 = plain.fc = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    plain.inplanes = 16
    for layer, width in (("layer1", 32), ("layer2", 64), ("layer3", 128)):
        setattr(plain, layer, plain._make_layer(torchvision.models.resnet.BasicBlock, width, 1, stride=2))
    plain.load_state_dict(ours.state_dict(), strict=True)
    x = images(3, 3, 32)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), plain.eval()(x), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "size", "said"),
    [
        ("resnet81", 32, "resnet18"),
        ("swin_tinny", 32, "swin_tiny"),
        ("qqqq", 32, "take one of resnet18"),
        ("swin_tiny", 33, "take 32 or 34"),
        ("convnext_atto", 1, "cannot take 3-channel images of 1 px"),
        ("vit_tiny_patch16_224", 8, "cannot take 3-channel images of 8 px"),
        ("resnet18", 0, "at least 1"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_remedy(name: str, size: int, said: str) -> None:
    with pytest.raises(UserError) as error:
        build_backbone(name, size, seed=0)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_the_mini_resnet_does_without_timm_and_the_packages_without_torch() -> None:
    program = """
import sys
import dualtemp.models, dualtemp.evaluation
dir(dualtemp.models), dir(dualtemp.evaluation)
assert "torch" not in sys.modules
assert dualtemp.models.build_backbone("resnet_mini", 8, 1, seed=0).num_features == 128
assert "timm" not in sys.modules and "torchvision" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_public_names_come_from_the_packages() -> None:
    from dualtemp import evaluation, models

    for package in (models, evaluation):
        found = {name: getattr(package, name) for name in package.__all__}
        assert all(callable(value) for value in found.values())
        # A second look, with every file loaded, must not meet a file of the same name.
        assert {name: getattr(package, name) for name in package.__all__} == found
        assert not hasattr(package, "no_such_name")


@pytest.mark.parametrize(("name", "size"), [("resnet18", 32), ("resnet50", 32), ("resnet18", 96)])
def test_resnets_of_the_paper_are_those_of_the_authors(name: str, size: int) -> None:
    model = build_backbone(f"paper_{name}", size, seed=0)
    theirs = getattr(torchvision.models, name)()  # last batch norms at one
    theirs.fc = nn.Identity()
    if size < 64:
        theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, 1, 2, bias=False), nn.Identity()
    # The same start: norms at one and zero, and the spread of every convolution's weights.
    for (ours_name, ours), (their_name, other) in zip(model.named_parameters(), theirs.named_parameters(), strict=True):
        assert ours_name == their_name
        assert ours.shape == other.shape
        if ours.ndim == 1:
            assert torch.equal(ours, other)
        else:
            assert ours.std().item() == pytest.approx(other.std().item(), rel=0.1)
    theirs.load_state_dict(model.state_dict(), strict=True)
    with torch.no_grad():
        torch.testing.assert_close(model(images(2, 3, size)), theirs(images(2, 3, size)), rtol=1e-4, atol=1e-4)


def test_transformers_of_the_paper_have_the_authors_patches() -> None:
    vit: Any = build_backbone("paper_vit_tiny", 32, seed=0)
    assert vit.pos_embed.shape == (1, 1 + 4, 192)  # four patches of 16 px
    swin: Any = build_backbone("paper_swin_tiny", 32, seed=0)
    assert swin.patch_embed.patch_size == (4, 4)
    assert [layer.input_resolution for layer in swin.layers] == [(8, 8), (8, 8), (4, 4), (2, 2)]
    assert {block.window_size for block in swin.layers[0].blocks} == {(4, 4)}
    for model in (vit, swin):
        assert model.eval()(images(2, 3, 32)).shape == (2, model.num_features)
    with pytest.raises(UserError, match="backbone paper_vit_tiny: cannot take"):
        build_backbone("paper_vit_tiny", 8)


@pytest.mark.parametrize("name", ["paper_resnet18", "paper_vit_tiny", "paper_swin_tiny"])
def test_networks_of_the_paper_can_be_built_by_their_recipe(name: str) -> None:
    model = randomised(build_backbone(name, 32, seed=0))
    again = built_by_recipe(json.loads(json.dumps(describe_backbone(name, 32))))
    again.load_state_dict(model.state_dict(), strict=True)
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(images(2, 3, 32)), model(images(2, 3, 32)))
