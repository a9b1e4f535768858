"""Backbones by name: timm's, laid out for the size of the images, and `resnet_mini`.

What is built is the plain timm module without classifier: its weights load into timm with strict=True. As timm does by
default, the last batch norm of a ResNet block starts at zero (`zero_init_last`), so that blocks start as identities.

The names with "paper_" are laid out as in the public code of the paper's authors: ResNets whose last batch norms start
at one, with a 3x3 stem padded by 2 below 64 px that is initialized as torch does it; vit_tiny with patches of 16 px and
swin_tiny with patches of 4 px at every size.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from dualtemp.errors import UserError
from dualtemp.models.registry import BUILT_IN, declared_backbones
from dualtemp.models.resnet_mini import ResNetMini
from dualtemp.text import did_you_mean, similar_words
from dualtemp.torchvision_operators import declare_missing_operators

# Our short names, and timm's.
SHORT_NAMES = {
    "resnet18": "resnet18",
    "resnet50": "resnet50",
    "vit_tiny": "vit_tiny_patch16_224",
    "swin_tiny": "swin_tiny_patch4_window7_224",
}
NAMES = BUILT_IN
# Small ResNets of our own, and how much wider than the first they are.
MINI_WIDTHS = {"resnet_mini": 1, "resnet_mini_x2": 2, "resnet_mini_x4": 4}
# The same networks as the paper's authors build them in their public code, where figures depend on it.
PUBLISHED = {f"paper_{name}": name for name in SHORT_NAMES}
# Below this size the ImageNet stem (stride 4) would leave too little of an image.
SMALL_IMAGE = 64


def build_backbone(name: str, image_size: int, channels: int = 3, *, seed: int | None = None) -> nn.Module:
    """Build an untrained backbone: (N, channels, image_size, image_size) -> features (N, `num_features`).

    Args:
        name: "resnet18", "resnet50", "vit_tiny", "swin_tiny", these after "paper_", "resnet_mini", any name of timm, or
            one that a plugin declares (`models.registry.backbone`).
        image_size: height and width of the images in pixels. ResNets get a 3x3 stem without stride and max-pool below
            64 px; vit_tiny patches of 4 px below 64 px, of 8 below 128, else of 16; swin_tiny patches of 1 px below
            16 px, of 2 below 64, else of 4.
        channels: of the images, default 3.
        seed: of the initial weights, which then depend on nothing else; None draws from torch's global generator.

    Returns:
        The module of timm (or `ResNetMini`) itself, in training mode, with an attribute `num_features`.
    """
    with seeded_initialization(seed):
        return _build(name, image_size, channels)[0]


def describe_backbone(name: str, image_size: int, channels: int = 3) -> dict[str, Any]:
    """Describe how to build the same module without dualtemp, as a dictionary for JSON.

    Its entries: `library` ("timm", "dualtemp", "plugin"), `model` and `arguments` (of `timm.create_model`), `replaced`
    (modules of the stem that are replaced, by name, and by what), `num_features`, and except for plugins `python`, a
    program that builds it as `model`.
    """
    with seeded_initialization(0):
        return _build(name, image_size, channels)[1]


@contextlib.contextmanager
def seeded_initialization(seed: int | None) -> Iterator[None]:
    """Draw the initial weights of modules built inside from `seed`, without touching torch's global generators.

    None does nothing: weights come from the global generator.
    """
    if seed is None:
        yield
        return
    # Only the CPU's generator is seeded (`torch.manual_seed` would reach those of accelerators, which stay unforked).
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        yield


def _build(name: str, image_size: int, channels: int) -> tuple[nn.Module, dict[str, Any]]:
    if image_size < 1 or channels < 1:
        raise UserError(f"backbone {name}: image size {image_size}, channels {channels}: both must be at least 1.")
    if name in MINI_WIDTHS:
        arguments = {"image_size": image_size, "channels": channels}
        if MINI_WIDTHS[name] > 1:
            arguments["width"] = MINI_WIDTHS[name]
        model = ResNetMini(**arguments)
        recipe = _recipe("dualtemp", "resnet_mini", arguments, {}, model.num_features)
        program = (
            f"from dualtemp.models import ResNetMini\nmodel = ResNetMini({', '.join(map(str, arguments.values()))})\n"
        )
        return model, recipe | {"python": program}
    if name in declared_backbones():
        return _build_declared(name, image_size, channels)
    short = PUBLISHED.get(name, name)
    timm_name = SHORT_NAMES.get(short, short)
    layout = _published_layout(short, image_size) if name in PUBLISHED else _layout(name, image_size)
    model, arguments = _create(name, timm_name, layout, image_size, channels)
    replaced = _small_image_stem(model, published=name in PUBLISHED) if image_size < SMALL_IMAGE else {}
    num_features = _measured_features(model, name, image_size, channels)
    if model.num_features != num_features:  # of models with a layer between pooling and classifier, such as VGG
        model.num_features = num_features  # pyright: ignore[reportArgumentType]
    recipe = _recipe("timm", timm_name, arguments, replaced, num_features)
    return model, recipe | {"python": _program(timm_name, arguments, replaced)}


def _build_declared(name: str, image_size: int, channels: int) -> tuple[nn.Module, dict[str, Any]]:
    model = declared_backbones()[name](image_size, channels)
    if not isinstance(model, nn.Module):
        raise UserError(f"backbone {name}: its function returns a {type(model).__name__}; expected a torch.nn.Module")
    model.num_features = _measured_features(model, name, image_size, channels)  # pyright: ignore[reportArgumentType]
    arguments = {"image_size": image_size, "channels": channels}
    return model, _recipe("plugin", name, arguments, {}, int(model.num_features))  # pyright: ignore[reportArgumentType]


def _recipe(library: str, model: str, arguments: dict, replaced: dict, num_features: int) -> dict[str, Any]:
    return {
        "library": library,
        "model": model,
        "arguments": arguments,
        "replaced": replaced,
        "num_features": num_features,
    }


def _program(timm_name: str, arguments: dict[str, Any], replaced: dict[str, str]) -> str:
    given = "".join(f", {key}={value!r}" for key, value in arguments.items())
    lines = ["import timm", "from torch import nn", f"model = timm.create_model({timm_name!r}{given})"]
    lines += [f"model.{place} = {module}" for place, module in replaced.items()]
    return "\n".join(lines) + "\n"


def _layout(name: str, image_size: int) -> dict[str, Any]:
    """timm's arguments that fit our transformers to the size of the images."""
    if name == "vit_tiny":
        patch = 4 if image_size < 64 else 8 if image_size < 128 else 16
        padded = {"dynamic_img_size": True, "dynamic_img_pad": True} if image_size % patch else {}
        return {"img_size": image_size, "patch_size": patch, **padded}
    if name == "swin_tiny":
        patch = 1 if image_size < 16 else 2 if image_size < 64 else 4
        if image_size % patch:
            below = image_size - image_size % patch
            raise UserError(
                f"backbone swin_tiny: image size {image_size} is not divisible by its patches of {patch} px; "
                f"take {below} or {below + patch}."
            )
        grid = image_size // patch
        # Windows that tile the grid without padding, where there are such; timm's own size is 7.
        window = next((w for w in (7, 6, 5, 4) if grid % w == 0), 7)
        return {"img_size": image_size, "patch_size": patch, "window_size": window}
    return {}


def _published_layout(name: str, image_size: int) -> dict[str, Any]:
    """timm's arguments for the networks that the authors build."""
    if name == "vit_tiny":
        return {"img_size": image_size, "patch_size": 16}
    if name == "swin_tiny":
        return {"img_size": image_size, "patch_size": 4, "window_size": 4 if image_size < SMALL_IMAGE else 7}
    return {"zero_init_last": False}


def _create(
    name: str, timm_name: str, layout: dict[str, Any], image_size: int, channels: int
) -> tuple[nn.Module, dict[str, Any]]:
    """Create a model of timm without classifier; also returns the arguments that worked."""
    declare_missing_operators()
    import timm

    if not timm.is_model(timm_name):
        near = similar_words(name, [*NAMES, *declared_backbones(), *PUBLISHED, *timm.list_models()], count=3)
        hint = did_you_mean(near) if near else f"take one of {', '.join(NAMES)} or a name of timm."
        raise UserError(f"backbone {name!r} is unknown: {hint} (your own needs --plugin FILE.py)")
    arguments: dict[str, Any] = {"num_classes": 0, "in_chans": channels}
    # Models with a fixed grid want the size; the others refuse the argument before anything is built.
    sized = {} if layout or name in SHORT_NAMES else {"img_size": image_size}
    given: dict[str, Any]
    for given in (arguments | layout | sized, arguments | layout):
        try:
            return timm.create_model(timm_name, pretrained=False, **given), given
        except TypeError as error:
            if "img_size" not in str(error) or "img_size" not in given:
                raise _unfit(name, image_size, channels, error) from error
        except (AssertionError, RuntimeError, ValueError, ZeroDivisionError, IndexError) as error:
            raise _unfit(name, image_size, channels, error) from error
    raise AssertionError("unreachable: the second attempt returns or raises")


def _small_image_stem(model: nn.Module, published: bool = False) -> dict[str, str]:
    """Replace a ResNet's 7x7 convolution by a 3x3 one of stride 1, and remove its max-pool.

    Returns the replacements by name, as Python; other models are left unchanged.
    """
    from timm.models.resnet import ResNet

    stem = model.conv1 if isinstance(model, ResNet) else None
    if not isinstance(stem, nn.Conv2d) or stem.kernel_size != (7, 7):
        return {}
    padding = 2 if published else 1
    model.conv1 = nn.Conv2d(stem.in_channels, stem.out_channels, 3, 1, padding, bias=False)
    if not published:
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.maxpool = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    return {
        "conv1": f"nn.Conv2d({stem.in_channels}, {stem.out_channels}, 3, 1, {padding}, bias=False)",
        "maxpool": "nn.Identity()",
    }


@torch.no_grad()
def _measured_features(model: nn.Module, name: str, image_size: int, channels: int) -> int:
    """Measure the number of features of an image of this size; refuses models that cannot take one."""
    model.eval()  # batch-norm statistics stay as they are
    try:
        out = model(torch.zeros(1, channels, image_size, image_size))
    except Exception as error:  # timm's models fail in as many ways as there are models
        raise _unfit(name, image_size, channels, error) from error
    model.train()
    if not isinstance(out, torch.Tensor) or out.ndim != 2:
        raise UserError(f"backbone {name}: gives no feature vector per image; take one of {', '.join(NAMES)}.")
    return out.shape[1]


def _unfit(name: str, image_size: int, channels: int, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:160] or type(error).__name__
    return UserError(
        f"backbone {name}: cannot take {channels}-channel images of {image_size} px ({reason}); "
        "choose another image size or backbone."
    )
