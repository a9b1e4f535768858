"""Batches larger than memory: the encoder sees them in chunks, the loss sees them whole.

Plain gradient accumulation would change the loss, whose negatives are the batch. Instead, all chunks are embedded
without a graph, the loss gives the gradient of every embedding, and each chunk is embedded again, with a graph, to
backpropagate its part of the gradient. The loss is the same; batch norm sees chunks.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dualtemp.device import seed_generators
from dualtemp.frameworks.network import Embedding, Network


class ChunkedNetwork(nn.Module):
    """Replaces a network: same parameters, same result, one chunk in memory at a time."""

    def __init__(self, network: Network, chunk: int) -> None:
        super().__init__()
        # The network's parts under their own names, so that a checkpoint fits with and without chunks.
        self.backbone, self.projector, self.predictor = network.backbone, network.projector, network.predictor
        self.whole, self.chunk = (network,), chunk
        self.passes: list[tuple[Tensor, Embedding, int]] = []

    @property
    def network(self) -> Network:
        """The network that this one replaces."""
        return self.whole[0]

    def key_part(self) -> Network:
        """The part that a momentum copy follows."""
        return self.network.key_part()

    def forward(self, view: Tensor) -> Embedding:
        """Embed (N, C, H, W) chunk by chunk; the result collects gradients for `backward`, unless they are disabled."""
        if not torch.is_grad_enabled():  # no second pass follows, so this one updates batch norm's statistics
            return self._embed(view)
        seed = int(torch.randint(2**62, ()))  # so that dropout and the like draw the same in both passes
        with torch.no_grad(), _frozen_statistics(self.network), _seeded(seed, view.device):
            leaves = Embedding(*(part.requires_grad_() for part in self._embed(view)))
        if self.network.predictor is None:
            leaves = leaves._replace(prediction=leaves.projection)
        self.passes.append((view, leaves, seed))
        return leaves

    def backward(self) -> None:
        """Backpropagate the gradients of all embeddings to the parameters; call it after the loss's backward."""
        outputs = slice(2 if self.network.predictor is None else 3)
        for view, leaves, seed in self.passes:
            with _seeded(seed, view.device):
                for start in range(0, len(view), self.chunk):
                    part = slice(start, start + self.chunk)
                    made = zip(self.network(view[part])[outputs], leaves[outputs], strict=True)
                    learned = ((output, leaf) for output, leaf in made if output.requires_grad)
                    pairs = [(output, leaf.grad[part]) for output, leaf in learned if leaf.grad is not None]
                    torch.autograd.backward([output for output, _ in pairs], [gradient for _, gradient in pairs])
        self.passes = []

    def _embed(self, view: Tensor) -> Embedding:
        parts = [self.network(x) for x in view.split(self.chunk)]
        return Embedding(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        seed_generators(seed, device)
        yield


@contextmanager
def _frozen_statistics(network: nn.Module) -> Iterator[None]:
    """Let batch norm normalize as in training without updating its running statistics: the second pass does that."""
    layers = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    before = [layer.momentum for layer in layers]
    counted = [None if m.num_batches_tracked is None else m.num_batches_tracked.clone() for m in layers]
    try:
        for layer in layers:
            layer.momentum = 0.0
        yield
    finally:
        for layer, momentum, count in zip(layers, before, counted, strict=True):
            layer.momentum = momentum
            if count is not None and layer.num_batches_tracked is not None:
                layer.num_batches_tracked.copy_(count)
