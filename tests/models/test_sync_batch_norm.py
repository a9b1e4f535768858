"""Synchronised batch norm changes where statistics come from, and nothing else."""

import copy

import pytest
import torch
from torch import nn

from dualtemp.models.backbones import build_backbone
from dualtemp.models.sync_batch_norm import synchronize_batch_norm

# Two whose batch norm is plain, and the families whose batch norm carries the activation.
PLAIN = ["resnet_mini", "resnet18"]
WITH_ACTIVATION = ["test_efficientnet", "mobilenetv3_small_050", "regnetx_002", "densenet121", "resnetv2_18"]


@pytest.mark.parametrize("name", PLAIN + WITH_ACTIVATION)
def test_a_network_computes_the_same_after_the_conversion(name: str) -> None:
    network = build_backbone(name, 64, seed=0)
    images = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    converted = synchronize_batch_norm(copy.deepcopy(network))
    norms = [m for m in converted.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert norms
    assert all(isinstance(m, nn.SyncBatchNorm) for m in norms)
    assert list(converted.state_dict()) == list(network.state_dict())
    for training in (False, True, False):  # outside of a group, training too; then with statistics that have moved
        found, expected = (
            model.train(training)(images) if not training else _drawn(model.train(), images)
            for model in (converted, network)
        )
        torch.testing.assert_close(found, expected)
    if name in WITH_ACTIVATION:
        dropped = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(network)).eval()
        assert not torch.allclose(dropped(images), network(images), rtol=0.1), "the case that this test is about"


def _drawn(network: nn.Module, images: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)  # of dropout
    return network(images)
