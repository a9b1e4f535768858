import pytest
import torch
from torch import nn

from dualtemp.models import heads


def layers(head: nn.Sequential) -> list[str]:
    """A head as text: Linear in-out (+ where it has a bias), BatchNorm (* where it scales and shifts), ReLU."""
    text = {
        nn.Linear: lambda m: f"{m.in_features}-{m.out_features}{'+' if m.bias is not None else ''}",
        nn.BatchNorm1d: lambda m: f"norm{m.num_features}{'*' if m.affine else ''}",
        nn.ReLU: lambda m: "relu",
    }
    return [text[type(module)](module) for module in head]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (heads.contrastive_projector(512), "512-128+ relu 128-128+"),
        (heads.contrastive_projector(128, batch_norm=True), "128-512 norm512* relu 512-128+"),
        (heads.contrastive_predictor(), "128-512 norm512* relu 512-128+"),
        (heads.simclr_projector(512), "512-512+ relu 512-128+"),
        (heads.byol_projector(512), "512-4096 norm4096* relu 4096-256+"),
        (heads.byol_predictor(), "256-4096 norm4096* relu 4096-256+"),
        (heads.simsiam_projector(512), "512-2048 norm2048* relu 2048-2048 norm2048* relu 2048-2048 norm2048"),
        (heads.simsiam_predictor(), "2048-512 norm512* relu 512-2048+"),
        (heads.contrastive_projector(16, hidden=8, out=4), "16-8+ relu 8-4+"),
        (heads.three_layer_projector(512, 8192), f"512-8192{' norm8192* relu 8192-8192' * 2}"),
        (heads.mlp(3, 2), "3-2+"),
    ],
)
def test_heads_have_the_published_layers(head: nn.Sequential, expected: str) -> None:
    assert " ".join(layers(head)) == expected


def test_a_head_computes_its_layers_in_order_and_leaves_its_input_alone() -> None:
    head = heads.contrastive_projector(6, 5, 4)
    x = torch.randn(3, 6)
    before = x.clone()
    first, last = head[0], head[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    expected = (x @ first.weight.T + first.bias).clamp_min(0) @ last.weight.T + last.bias
    torch.testing.assert_close(head(x), expected)
    assert torch.equal(x, before)


def test_the_output_of_a_simsiam_projector_is_standardised_over_the_batch() -> None:
    out = heads.simsiam_projector(6, 16, 8)(torch.randn(64, 6))
    torch.testing.assert_close(out.mean(0), torch.zeros(8), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.var(0, correction=0), torch.ones(8), atol=1e-3, rtol=0)
