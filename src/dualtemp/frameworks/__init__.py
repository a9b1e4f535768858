"""The frameworks: each turns the views of a batch into a loss, with no more encoder passes than it needs.

Importing the package is cheap: torch is loaded with the first name that needs it.
"""

from typing import TYPE_CHECKING

from dualtemp.frameworks.registry import framework, framework_named, frameworks, load_plugin
from dualtemp.lazy import lazily

if TYPE_CHECKING:
    # The modules that `registry` finds in this folder, for readers and tools that follow imports.
    from dualtemp.frameworks import (  # noqa: F401
        barlow_twins,
        byol,
        distil,
        moco,
        simclr,
        simco,
        simmoco,
        simsiam,
        supervised,
        vicreg,
    )
    from dualtemp.frameworks.build import FrameworkModule, build_framework
    from dualtemp.frameworks.network import Embedding, Network, Step
    from dualtemp.frameworks.protocol import Context, Framework, FrameworkSettings, Passes, Temperatures

_HOME = {
    "Context": "protocol",
    "Embedding": "network",
    "Framework": "protocol",
    "FrameworkModule": "build",
    "FrameworkSettings": "protocol",
    "Network": "network",
    "Passes": "protocol",
    "Step": "network",
    "Temperatures": "protocol",
    "build_framework": "build",
}

__all__ = [
    "Context",
    "Embedding",
    "Framework",
    "FrameworkModule",
    "FrameworkSettings",
    "Network",
    "Passes",
    "Step",
    "Temperatures",
    "build_framework",
    "framework",
    "framework_named",
    "frameworks",
    "load_plugin",
]

__getattr__, __dir__ = lazily(__name__, _HOME)
