"""A first-in, first-out dictionary of keys."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dualtemp import distributed


class KeyDictionary(nn.Module):
    """A ring of `size` keys of dimension `dim`, all of unit length; new keys overwrite the oldest.

    It starts with random unit vectors, as MoCo's does, so that there are `size` keys from the first step on. Keys and
    the place in the ring are in the state dict. `keys`, and a part that does not run over the ring's end, are views: no
    step copies the dictionary.

    Args:
        size: number of keys, at least 1.
        dim: their dimension, at least 1.
        seed: of the random keys it starts with; processes that share a seed hold the same dictionary.

    Example:
        >>> dictionary = KeyDictionary(65536, 128)
        >>> loss = info_nce(q, k, dictionary.keys)  # doctest: +SKIP
        >>> loss.backward()  # doctest: +SKIP
        >>> dictionary.enqueue(k)  # doctest: +SKIP
    """

    keys: Tensor  # (size, dim), in the order of the ring

    def __init__(self, size: int, dim: int, *, seed: int = 0) -> None:
        super().__init__()
        if size < 1 or dim < 1:
            raise ValueError(f"size and dim must be at least 1, got size={size}, dim={dim}")
        random = torch.randn(size, dim, generator=torch.Generator().manual_seed(seed))
        self.register_buffer("keys", F.normalize(random, dim=1))
        self.seen = 0  # real keys that ever came in
        self.step = 0  # real keys that came in with the last step

    def __len__(self) -> int:
        """Number of keys, real or random."""
        return len(self.keys)

    @property
    def real(self) -> int:
        """Number of keys that came from an encoder; the other `len(self) - real` are random still."""
        return min(self.seen, len(self))

    @torch.no_grad()
    def enqueue(self, keys: Tensor, *, gather: bool = False) -> None:
        """Replace the oldest keys by those of a step, (N, dim), of any length.

        Of a batch larger than the dictionary, the last `size` keys are kept. A key that is not finite, as in a step
        that overflows, leaves the old one in its place.

        Args:
            keys: (N, dim), for any N.
            gather: take the keys of all processes, so that every process keeps the same dictionary.
        """
        if keys.ndim != 2 or keys.shape[1] != self.keys.shape[1] or not keys.is_floating_point():
            raise ValueError(
                f"keys must be a floating-point (N, {self.keys.shape[1]}) matrix, got {keys.dtype} {tuple(keys.shape)}"
            )
        if gather:
            keys = distributed.gather(keys)
        self.seen += len(keys)
        self.step = min(len(keys), len(self))
        precise = torch.promote_types(self.keys.dtype, torch.float32)  # float16 has no room for lengths, nor for 1e-12
        keys = F.normalize(keys[len(keys) - self.step :].to(self.keys.device, precise), dim=1).to(self.keys)
        for part, new in zip(self._window(self.step), keys.split(self._lengths(self.step)), strict=True):
            self.keys[part] = torch.where(new.isfinite().all(1, keepdim=True), new, self.keys[part])

    def newest(self, n: int) -> Tensor:
        """The n youngest keys, (n, dim), oldest of them first."""
        return self._read(self._within(n), back=0)

    def earliest(self, n: int) -> Tensor:
        """The n oldest keys still held, (n, dim), oldest first; at the beginning these are random vectors."""
        return self._read(self._within(n), back=len(self) - n)

    def random(self, n: int, generator: torch.Generator | int | None = None) -> Tensor:
        """A draw of n different keys, (n, dim); `generator` is on the CPU, or a seed."""
        if isinstance(generator, int):
            generator = torch.Generator().manual_seed(generator)
        drawn = torch.randperm(len(self), generator=generator)[: self._within(n)]
        if self.keys.is_cuda:  # a copy from ordinary memory would wait for the device
            drawn = torch.empty_like(drawn, pin_memory=True).copy_(drawn)
        return self.keys[drawn.to(self.keys.device, non_blocking=True)]

    def last(self) -> Tensor:
        """The keys of the last step, (N, dim): none before the first step, at most `size`."""
        return self._read(self.step, back=0)

    def _within(self, n: int) -> int:
        if not 0 < n <= len(self):
            raise ValueError(f"n must be from 1 to the dictionary's size {len(self)}, got {n}")
        return n

    def _window(self, n: int, back: int = 0) -> list[slice]:
        """Where in the ring the n keys before the `back` youngest are: one slice, or two if they run over its end."""
        end = (self.seen - back) % len(self) or len(self)
        if n <= end:
            return [slice(end - n, end)]
        return [slice(end - n + len(self), len(self)), slice(0, end)]

    def _lengths(self, n: int) -> list[int]:
        return [part.stop - part.start for part in self._window(n)]

    def _read(self, n: int, back: int) -> Tensor:
        parts = [self.keys[part] for part in self._window(n, back)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def get_extra_state(self) -> Tensor:
        """The position in the ring, as a tensor, which any weights format can hold."""
        return torch.tensor([self.seen, self.step])

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the position in the ring from a state dict."""
        self.seen, self.step = (int(x) for x in state)

    def extra_repr(self) -> str:
        """Size, dimension and how many keys are real."""
        return f"size={len(self)}, dim={self.keys.shape[1]}, real={self.real}"


def dictionaries(count: int, size: int, dim: int, seed: int) -> nn.ModuleList:
    """Create `count` dictionaries, each with its own random keys."""
    return nn.ModuleList(KeyDictionary(size, dim, seed=seed + i) for i in range(count))
