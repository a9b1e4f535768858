"""Adapt a pretrained start: which parts of the encoder learn, when, and at which rate."""

import torch
from torch import nn

from dualtemp.config import Settings
from dualtemp.errors import UserError
from dualtemp.frameworks.network import Network
from dualtemp.models.stages import frozen_modules, parameter_stages, stage_names

NEEDS_START = {"freeze": 0, "freeze_batch_norm": False, "warmup_heads": 0.0, "anchor": 0.0, "stop_below_start": False}


class Adaptation:
    """Freezes parts of an encoder, and sets the learning rates of the others.

    Frozen stages have no gradient and are in eval mode, so that neither weights nor batch norm statistics change, and
    autograd stores nothing for them. While the heads warm up, the whole encoder is frozen.

    Args:
        settings: complete settings.
        method: the framework; momentum copies in it are frozen like the encoder that they follow.
        epoch_steps: steps of an epoch.
    """

    def __init__(self, settings: Settings, method: nn.Module, epoch_steps: int) -> None:
        self.settings, self.method = settings, method
        self.warmup_steps = round(settings.warmup_heads * epoch_steps)
        self.backbones = [part.backbone for part in method.modules() if isinstance(part, Network)]
        self.learning = self._choose_parameters()
        self.warms_up: bool | None = None
        encoders = {part for network in method.modules() if isinstance(network, Network) for part in network.modules()}
        self.resting = [part for part in method.modules() if not part.training and part not in encoders]
        self._set_modes()

    def begin_step(self, step: int) -> None:
        """Freeze or unfreeze the encoder as step `step` of the run (from 0) requires."""
        warms_up = step < self.warmup_steps
        if warms_up == self.warms_up:
            return
        self.warms_up = warms_up
        for p in self.learning:
            p.requires_grad_(not warms_up)
        if warms_up:
            for backbone in self.backbones:
                backbone.eval()
        else:
            self._set_modes()

    def rates(self) -> dict[torch.Tensor, float]:
        """Factors of the learning rate by parameter of the encoder; empty if all learn at the same rate.

        The factor is 1 for the heads, `layer_decay` for the last stage, its square for the stage before, and so on.
        """
        if self.settings.layer_decay == 1:
            return {}
        network: Network = self.method.network  # pyright: ignore[reportAssignmentType]
        stages = parameter_stages(network.backbone)
        count = 1 + max(stages.values())
        named = dict(network.backbone.named_parameters())
        return {named[name]: self.settings.layer_decay ** (count - stage) for name, stage in stages.items()}

    def _set_modes(self) -> None:
        """Put everything into training mode, except frozen parts and what the framework itself put into eval mode."""
        set_modes(self.settings, self.method)
        for module in self.resting:
            module.training = False

    def _choose_parameters(self) -> list[nn.Parameter]:
        """Freeze the first stages; returns the encoder's parameters that are left to learn."""
        network: Network = self.method.network  # pyright: ignore[reportAssignmentType]
        frozen = frozen_stages(self.settings, network.backbone)
        if frozen:
            stages = parameter_stages(network.backbone)
            for name, p in network.backbone.named_parameters():
                if stages[name] < frozen:
                    p.requires_grad_(False)
        return [p for p in network.backbone.parameters() if p.requires_grad]


def frozen_stages(settings: Settings, backbone: nn.Module) -> int:
    """The number of frozen stages, from the input on; a negative `freeze` counts from the end."""
    if settings.freeze >= 0:
        return settings.freeze
    return max(0, 1 + max(parameter_stages(backbone).values()) + settings.freeze)


def set_modes(settings: Settings, method: nn.Module) -> None:
    """Put a framework into training mode, and the frozen parts of its encoders into eval mode."""
    method.train()
    for network in [part for part in method.modules() if isinstance(part, Network)]:
        for module in frozen_modules(network.backbone, frozen_stages(settings, network.backbone)):
            module.eval()
        if settings.freeze_batch_norm:
            for module in network.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()


def check_adaptation(settings: Settings, backbone: nn.Module, labeled: bool) -> None:
    """Raise UserError for adaptation settings that do not fit the start, the network or the data."""
    given = [name for name, without in NEEDS_START.items() if getattr(settings, name) != without]
    if given and settings.init is None:
        flag = given[0].replace("_", "-")
        raise UserError(f"--{flag} is for a run that begins from a start: give --init imagenet, or leave it out")
    if settings.freeze:
        names = stage_names(backbone)
        if not -len(names) < settings.freeze < len(names):
            lack = "nothing to learn" if settings.freeze > 0 else "nothing frozen"
            raise UserError(
                f"freeze {settings.freeze} leaves {lack}: {settings.backbone} has {len(names)} stages "
                f"({', '.join(names)}); give --freeze {1 - len(names)} to {len(names) - 1}"
            )
    if settings.layer_decay != 1:
        parameter_stages(backbone)
    if settings.warmup_heads > settings.epochs:
        raise UserError(
            f"warmup_heads {settings.warmup_heads:g} is more than the {settings.epochs} epochs of the run: the encoder "
            "would never learn; give fewer"
        )
    if settings.stop_below_start and not labeled:
        raise UserError(
            "stop_below_start compares accuracies, and these images have no labels: leave it out, or take stop_by_judge"
        )
