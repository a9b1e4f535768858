"""Backbones declared by plugins, by name; those of this package and of timm are in `backbones.py`. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dualtemp.errors import UserError
from dualtemp.plugins import Registry

if TYPE_CHECKING:
    from torch import nn

    Build = Callable[[int, int], nn.Module]  # (image_size, channels) -> a module that gives features (N, num_features)

BUILT_IN = ("resnet18", "resnet50", "vit_tiny", "swin_tiny", "resnet_mini", "resnet_mini_x2", "resnet_mini_x4")
_registry: Registry[Build] = Registry("backbone")


def backbone(name: str) -> Callable[[Build], Build]:
    """Register a function that builds the backbone of this name: `@backbone("mine")`.

    It takes image_size and channels, and returns a module: images (N, channels, image_size, image_size) -> features (N,
    F). Initial weights come from torch's global generator, which is seeded for it.
    """

    def register(build: Build) -> Build:
        if name in BUILT_IN:
            raise UserError(f"two backbones are called {name!r}: in dualtemp and in {build.__module__}")
        _registry.declare(name, build, build.__module__)
        return build

    return register


def declared_backbones() -> Mapping[str, Build]:
    """The functions that build the backbones of plugins and installed packages, by name."""
    return _registry
