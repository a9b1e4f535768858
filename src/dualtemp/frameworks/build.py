"""Build a framework from settings, ready to train."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dualtemp.config import Settings
from dualtemp.frameworks.network import Network, Step
from dualtemp.frameworks.protocol import Context, Framework, newest_version
from dualtemp.models.backbones import build_backbone
from dualtemp.models.starts import NONE, open_start


class FrameworkModule(nn.Module):
    """A framework as a module: `to`, `train` and `state_dict` reach its parts, under the names of its attributes.

    If the framework is a module itself, the parts are its children, parameters and buffers.
    """

    def __init__(self, framework: Framework) -> None:
        super().__init__()
        self._framework = (framework,)  # a tuple, so that it is not a child: its parts are
        named = dict(vars(framework))
        if isinstance(framework, nn.Module):
            named = dict(framework.named_children()) | dict(framework.named_parameters(recurse=False))
            # The very same dictionary, so that moving a buffer to a device moves the framework's.
            self._buffers = framework._buffers
            self._non_persistent_buffers_set = framework._non_persistent_buffers_set
        for name, part in named.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            elif isinstance(part, nn.Parameter):
                self.register_parameter(name, part)

    @property
    def framework(self) -> Any:
        """The framework itself."""
        return self._framework[0]

    def forward(self, views: tuple[Tensor, ...], labels: Tensor | None, step: int, index: Tensor | None = None) -> Step:
        """Compute one step of the framework; `index` is passed on only if the framework takes it."""
        if getattr(self.framework, "takes_index", False):
            return self.framework.forward(views, labels, step, index=index)
        return self.framework.forward(views, labels, step)

    def after_step(self) -> None:
        """Do what follows the optimizer's step."""
        self.framework.after_step()


def build_framework(
    chosen: Settings,
    channels: int,
    classes: int,
    images: int = 0,
    load: Callable[[nn.Module], None] | None = None,
) -> FrameworkModule:
    """Build the framework that complete settings describe; random weights depend on the seed alone.

    channels: of the images; classes: their number, for frameworks that learn from labels; images: number of training
    images, for frameworks that keep values per image or have a schedule over the run; load: loads the run's initial
    weights into the backbone, by default those that `init` names.
    """
    assert chosen.image_size is not None
    backbone: Any = build_backbone(chosen.backbone, chosen.image_size, channels, seed=chosen.seed)
    if load is not None:
        load(backbone)
    elif chosen.init not in (None, NONE):
        open_start(chosen.init).load_into(backbone)
    kind, options = chosen.framework, chosen.options
    computation = chosen.computation or newest_version(kind, options)
    context = Context(chosen.seed, chosen.batch, classes, computation, images, chosen.epochs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(chosen.seed + 1)
        network = Network(backbone, *kind.heads(options, backbone.num_features, context))
    return FrameworkModule(kind(options, network, context))
