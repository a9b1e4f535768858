"""The stages of a backbone, from the input to the features: what `--freeze` counts and `--layer-decay` scales.

A backbone says itself which parameters belong together, as timm's do (`group_matcher`): stem, then blocks of one
resolution of a ResNet, single blocks of a transformer. What stands after the last block counts with it.
"""

from typing import Any

import torch
from torch import Tensor, nn

from dualtemp.errors import UserError
from dualtemp.torchvision_operators import declare_missing_operators


def parameter_stages(backbone: nn.Module) -> dict[str, int]:
    """Number the stage of every parameter, by its name, from 0; UserError if the backbone does not tell its stages."""
    matcher = getattr(backbone, "group_matcher", None)
    if matcher is None:
        raise UserError(
            f"a {type(backbone).__name__} does not tell its stages: --freeze and --layer-decay need a network of "
            "timm, resnet_mini, or one with a method group_matcher"
        )
    declare_missing_operators()
    from timm.models import group_parameters

    found: Any = group_parameters(backbone, matcher(coarse=True), reverse=True)
    numbers = {number: place for place, number in enumerate(sorted(set(found.values())))}
    return {name: numbers[number] for name, number in found.items()}


def stage_names(backbone: nn.Module) -> list[str]:
    """Name the stages after the module that each begins with: ["conv1", "layer1", ...]."""
    stages = parameter_stages(backbone)
    names: dict[int, str] = {}
    for name, stage in stages.items():
        parts = name.split(".")
        paths = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
        alone = (path for path in paths if {s for n, s in stages.items() if f"{n}.".startswith(f"{path}.")} == {stage})
        names.setdefault(stage, next(alone))
    return [names[stage] for stage in sorted(names)]


def frozen_modules(backbone: nn.Module, count: int) -> list[nn.Module]:
    """The largest modules all of whose parameters belong to the first `count` stages."""
    if count < 1:
        return []
    stages = parameter_stages(backbone)
    found: list[nn.Module] = []
    within: set[str] = set()
    for path, module in backbone.named_modules():
        names = [f"{path}.{name}" if path else name for name, _ in module.named_parameters()]
        if not names or any(stages[name] >= count for name in names):
            continue
        if not any(path.startswith(f"{outer}.") for outer in within):
            found.append(module)
            within.add(path)
    return found


class Rest(nn.Module):
    """The stages of a backbone after the first `count`: from the activations that `boundary` gives to the features.

    The modules are the backbone's own; a deep copy is independent of it.
    """

    def __init__(self, pieces: list[nn.Module]) -> None:
        super().__init__()
        self.pieces = nn.ModuleList(pieces)

    def forward(self, x: Tensor) -> Tensor:
        """Features (N, F) of activations."""
        for piece in self.pieces:
            x = piece(x)
        return x


class MeanOverImage(nn.Module):
    """(N, C, H, W) -> (N, C)."""

    def forward(self, x: Tensor) -> Tensor:
        """Average over height and width."""
        return x.mean((2, 3))


def split_backbone(backbone: nn.Module, count: int, sample: Tensor) -> tuple[nn.Module, Rest] | None:
    """Split a backbone after its first `count` stages, so that what comes after can be computed alone.

    Returns the module whose output is the activation there, and the rest; None where that is not known of this
    network. It is proven on the sample (N, C, H, W): the features must be the same, bit for bit.
    """
    order = _ordered(backbone)
    if order is None or count < 1:
        return None
    stages = parameter_stages(backbone)
    names = {id(module): path for path, module in backbone.named_modules()}
    last = -1
    for place, piece in enumerate(order):
        own = [stages[f"{names[id(piece)]}.{name}"] for name, _ in piece.named_parameters() if id(piece) in names]
        if own and max(own) < count:
            last = place
        elif own:
            break
        elif last >= 0:
            last = place  # what has no parameters, such as pooling, belongs to what stands before it
    if last < 0 or last + 1 == len(order):
        return None
    boundary, rest = order[last], Rest(order[last + 1 :])
    return (boundary, rest) if _same(backbone, boundary, rest, sample) else None


def _ordered(backbone: Any) -> list[nn.Module] | None:
    """The modules of a backbone that runs through them one after the other; None for others."""
    for names in (
        ("conv_stem", "bn1", "blocks", "conv_head", "bn2", "global_pool", "classifier"),
        ("conv1", "bn1", "act1", "maxpool", "layer1", "layer2", "layer3", "layer4", "global_pool", "fc"),
    ):
        if all(isinstance(getattr(backbone, name, None), nn.Module) for name in names):
            found: list[nn.Module] = []
            for name in names:
                module = getattr(backbone, name)
                found += list(module) if name == "blocks" and isinstance(module, nn.Sequential) else [module]
            return found
    if all(hasattr(backbone, name) for name in ("conv1", "bn1", "relu", "layer1", "layer2", "layer3")):
        parts = [getattr(backbone, name) for name in ("conv1", "bn1", "relu", "layer1", "layer2", "layer3")]
        return [*parts, MeanOverImage()]
    return None


@torch.no_grad()
def _same(backbone: nn.Module, boundary: nn.Module, rest: Rest, sample: Tensor) -> bool:
    seen: list[Tensor] = []
    modes = [(part, part.training) for part in (*backbone.modules(), *rest.modules())]
    hook = boundary.register_forward_hook(lambda module, given, output: seen.append(output.clone()))
    try:
        backbone.eval()
        rest.eval()
        return torch.equal(backbone(sample), rest(seen[-1]))
    except Exception:  # a network of another make: whatever it raises, it cannot be split so
        return False
    finally:
        hook.remove()
        for part, mode in modes:
            part.training = mode
