"""The frameworks: each turns two views of a batch into a loss, with no more encoder passes than it needs."""

from dualtemp.methods.build import build_method, views_needed
from dualtemp.methods.network import Embedding, Network, Step

__all__ = ["Embedding", "Network", "Step", "build_method", "views_needed"]
