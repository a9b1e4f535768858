"""A batch that goes through the encoder in chunks gives the same loss and the same gradients."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dualtemp.frameworks import Context, FrameworkModule
from dualtemp.frameworks.barlow_twins import BarlowTwins
from dualtemp.frameworks.byol import BYOL
from dualtemp.frameworks.moco import MoCo
from dualtemp.frameworks.network import Network
from dualtemp.frameworks.simco import SimCo
from dualtemp.frameworks.simmoco import SimMoCo
from dualtemp.frameworks.simsiam import SimSiam
from dualtemp.frameworks.vicreg import VICReg
from dualtemp.training.chunked import ChunkedNetwork

N = 14


def network(predictor: bool, *extra: nn.Module) -> Network:
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(12, 9), *extra, nn.Tanh(), nn.Linear(9, 6))
    return Network(backbone, nn.Linear(6, 128), nn.Linear(128, 128) if predictor else None).double()


METHODS: dict[str, Any] = {
    "simco": lambda: framework(SimCo),
    "simmoco": lambda: framework(SimMoCo, key_momentum=0.9, symmetric=True),
    "moco": lambda: framework(MoCo, key_momentum=0.9, dictionary_size=20, symmetric=True),
    "byol": lambda: framework(BYOL, key_momentum=0.9, hardness_aware=True, predictor=True),
    "simsiam": lambda: framework(SimSiam, predictor=True),
    "vicreg": lambda: framework(VICReg),
    "barlow_twins": lambda: framework(BarlowTwins),
    "simco, predictor": lambda: framework(SimCo, predictor=True),
    "simmoco, predictor": lambda: framework(SimMoCo, predictor=True, symmetric=True),
    "moco, predictor": lambda: framework(MoCo, predictor=True, dictionary_size=20),
}


def framework(kind: Any, predictor: bool = False, **settings: Any) -> FrameworkModule:
    if "predictor" in kind.Settings.model_fields:
        settings["predictor"] = predictor
    context = Context(seed=0, batch=N, computation=kind.version)
    return FrameworkModule(kind(kind.Settings(**settings), network(predictor), context))


def stepped(method: Any, views: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Loss, features, and all weights after two steps of SGD."""
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1)
    made: Any = None
    for step in range(2):
        torch.manual_seed(step)
        made = method(views, None, step)
        optimizer.zero_grad()
        made.loss.backward()
        if isinstance(method.framework.network, ChunkedNetwork):
            method.framework.network.backward()
        optimizer.step()
        method.after_step()
    return made.loss.detach(), made.features, list(method.state_dict().values())


@pytest.mark.parametrize("chunk", [1, 4, 7, 13])
@pytest.mark.parametrize("name", METHODS)
def test_chunks_change_neither_loss_nor_weights(name: str, chunk: int) -> None:
    torch.manual_seed(0)
    whole = METHODS[name]().double()
    views = (torch.randn(N, 3, 2, 2).double(), torch.randn(N, 3, 2, 2).double())
    chunked = copy.deepcopy(whole)
    chunked.framework.network = ChunkedNetwork(chunked.network, chunk)
    assert list(chunked.state_dict()) == list(whole.state_dict()), "a checkpoint fits with and without chunks"
    expected, found = stepped(whole, views), stepped(chunked, views)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-12, atol=1e-12)
    for one, other in zip(found[2], expected[2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_loss_of_the_features_of_an_encoder_that_rests_reaches_the_heads() -> None:
    torch.manual_seed(0)
    whole = network(False)
    whole.backbone.requires_grad_(False)
    chunked, view = ChunkedNetwork(copy.deepcopy(whole), 4), torch.randn(N, 3, 2, 2).double()
    for each in (whole, chunked):
        made = each(view)
        (made.features.sum() + made.projection.square().sum()).backward()
    chunked.backward()
    for one, other in zip(whole.projector.parameters(), chunked.network.projector.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad)


def test_running_statistics_move_once_for_each_chunk() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(9)
    chunked, alone = ChunkedNetwork(network(False, norm), 7), nn.BatchNorm1d(9).double()
    view = torch.randn(N, 3, 2, 2).double()
    hidden = chunked.backbone[1](view.flatten(1)).detach()  # pyright: ignore
    chunked(view).projection.sum().backward()
    assert norm.num_batches_tracked == 0
    assert norm.running_mean.count_nonzero() == 0  # pyright: ignore
    chunked.backward()
    for part in hidden.split(7):
        alone(part)
    assert norm.num_batches_tracked == 2
    torch.testing.assert_close(norm.running_mean, alone.running_mean)
    torch.testing.assert_close(norm.running_var, alone.running_var)


def test_dropout_is_the_same_in_both_passes() -> None:
    torch.manual_seed(0)
    drop = nn.Dropout(0.5)
    seen: list[Any] = []
    drop.register_forward_hook(lambda module, given, made: seen.append(made == 0))
    chunked = ChunkedNetwork(network(False, drop), 7)
    view = torch.randn(N, 3, 2, 2).double()
    for made in (chunked(view), chunked(view)):
        made.projection.sum().backward()
    chunked.backward()
    masks = [part.flatten().tolist() for part in seen]
    assert masks[:4] == masks[4:]
    assert len({str(mask) for mask in masks[:4]}) == 4, "every chunk of every pass draws its own"


def test_a_pass_without_gradient_is_not_recorded_and_moves_statistics_at_once() -> None:
    torch.manual_seed(0)
    whole = network(True, nn.BatchNorm1d(9))
    chunked = ChunkedNetwork(copy.deepcopy(whole), 7)
    view = torch.randn(N, 3, 2, 2).double()
    with torch.no_grad():
        found = chunked(view)
        expected = [torch.cat(parts) for parts in zip(*(whole(part) for part in view.split(7)), strict=True)]
    for one, other in zip(found, expected, strict=True):
        assert not one.requires_grad
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert chunked.passes == []
    chunked.backward()
    for one, other in zip(chunked.network.buffers(), whole.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
