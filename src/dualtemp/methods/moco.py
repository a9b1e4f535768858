"""MoCo v2: keys from a momentum encoder, negatives from a dictionary, which vector and scalar may see differently."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dualtemp import distributed
from dualtemp.dictionary import KeyDictionary
from dualtemp.losses import decomposed, info_nce
from dualtemp.methods.network import Network, Step
from dualtemp.models.momentum import MomentumCopy
from dualtemp.similarity import unit


@dataclass(frozen=True)
class KeyChoice:
    """Which keys of the dictionary a component sees: all, or `size` of them, "newest", "random" or "earliest"."""

    size: int | None = None
    sampling: str = "newest"

    def of(self, dictionary: KeyDictionary, seed: int) -> Tensor:
        """The keys, (size, D). A random draw is a function of the seed."""
        if self.size is None or self.size == len(dictionary):
            return dictionary.keys
        if self.sampling == "random":
            return dictionary.random(self.size, torch.Generator().manual_seed(seed))
        return getattr(dictionary, self.sampling)(self.size)


class MoCo(nn.Module):
    """One query pass and one gradient-free key pass a step; two of each, and two dictionaries, in the "+" variant.

    Where both components see the same keys at the same temperature the loss is InfoNCE (eq:infonce), otherwise its
    decomposition (eq:infonce_nss_equiva).
    """

    def __init__(
        self,
        network: Network,
        dim: int,
        tau_alpha: float,
        tau_beta: float,
        key_momentum: float,
        dictionary_size: int,
        vector: KeyChoice = KeyChoice(),  # noqa: B008  frozen
        scalar: KeyChoice = KeyChoice(),  # noqa: B008
        symmetric: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.network, self.key_network = network, MomentumCopy(network.key_part())
        self.dictionaries = nn.ModuleList(
            KeyDictionary(dictionary_size, dim, seed=seed + i) for i in range(1 + symmetric)
        )
        self.tau_alpha, self.tau_beta, self.key_momentum = tau_alpha, tau_beta, key_momentum
        self.vector, self.scalar, self.seed = vector, scalar, seed
        self.new_keys: list[Tensor] = []

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> Step:
        """One step: views are two (N, C, H, W)."""
        stats: dict[str, Tensor] = {}
        self.new_keys, losses, features = [], [], None
        for direction, dictionary in enumerate(self.dictionaries):
            q, k = self.network(views[direction]), self.key_network(views[1 - direction]).projection
            features = q.features.detach() if features is None else features
            losses.append(self._loss(q.projection, k, dictionary, step, stats if direction == 0 else None))
            self.new_keys.append(k)
        assert features is not None
        return Step(distributed.global_mean(torch.stack(losses).mean()), features, stats)

    def after_step(self) -> None:
        """Let the key encoder follow, and put this step's keys of all processes into the dictionaries."""
        self.key_network.follow(self.network.key_part(), self.key_momentum)
        for dictionary, keys in zip(self.dictionaries, self.new_keys, strict=True):
            assert isinstance(dictionary, KeyDictionary)
            dictionary.enqueue(keys, gather=True)
        self.new_keys = []

    def _loss(self, q: Tensor, k: Tensor, dictionary: nn.Module, step: int, stats: dict[str, Tensor] | None) -> Tensor:
        assert isinstance(dictionary, KeyDictionary)
        q, k = unit(q, k)  # the dictionary's keys are unit vectors already
        seed = ((self.seed << 32) + 2 * step) % (1 << 63)  # what a generator takes
        vector_keys = self.vector.of(dictionary, seed)
        if self.scalar == self.vector and self.tau_beta == self.tau_alpha:
            return info_nce(q, k, vector_keys, self.tau_alpha, normalize=False, stats=stats)
        scalar_keys = vector_keys if self.scalar == self.vector else self.scalar.of(dictionary, seed + 1)
        return decomposed(q, k, vector_keys, scalar_keys, self.tau_alpha, self.tau_beta, normalize=False, stats=stats)
