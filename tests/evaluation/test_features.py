from collections.abc import Iterator

import pytest
import torch
from torch import nn

from dualtemp.evaluation import image_features, image_features_and_labels
from dualtemp.evaluation.features import evaluating
from dualtemp.models import build_backbone


def test_features_are_those_of_eval_mode_in_order_however_images_are_batched() -> None:
    encoder = build_backbone("resnet_mini", 32, seed=0)
    x, labels = torch.randn(10, 3, 32, 32), torch.arange(10)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    found = image_features(encoder, x.split(3))
    with_labels, found_labels = image_features_and_labels(
        encoder, zip(x.split(4), labels.split(4), strict=True), device="cpu"
    )
    assert encoder.training
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    with torch.no_grad():
        expected = encoder.eval()(x)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(with_labels, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(found_labels, labels)


def test_features_are_float32_and_can_be_learned_from() -> None:
    encoder = nn.Linear(4, 3).to(torch.bfloat16)
    found = image_features(encoder, [torch.randn(5, 4, dtype=torch.bfloat16)])
    assert found.dtype == torch.float32
    assert not found.requires_grad
    weight = torch.ones(3, requires_grad=True)
    (found @ weight).sum().backward()  # a tensor of inference mode would refuse
    torch.testing.assert_close(weight.grad, found.sum(0))


def test_a_batch_is_read_when_the_one_before_has_gone_through_the_encoder() -> None:
    events: list[str] = []
    encoder = nn.Linear(4, 3)
    encoder.register_forward_hook(lambda *_: events.append("encoded"))

    def batches() -> Iterator[torch.Tensor]:
        for _ in range(3):
            events.append("read")
            yield torch.randn(2, 4)

    assert image_features(encoder, batches()).shape == (6, 3)
    assert events == ["read", "encoded"] * 3


def test_every_submodule_gets_its_own_mode_back_even_after_an_error() -> None:
    encoder = nn.Sequential(nn.BatchNorm1d(4), nn.Sequential(nn.Dropout(), nn.BatchNorm1d(4)))
    encoder.train()
    encoder[1].eval()
    encoder[1].get_submodule("0").train()
    modes = [part.training for part in encoder.modules()]
    with pytest.raises(ValueError, match="not one batch"):
        image_features(encoder, [])
    with evaluating(encoder):
        assert not any(part.training for part in encoder.modules())
    assert [part.training for part in encoder.modules()] == modes


def test_batches_without_labels_are_refused_where_labels_are_asked_for() -> None:
    with pytest.raises(ValueError, match="must be tuples"):
        image_features_and_labels(nn.Linear(4, 3), [torch.randn(2, 4)])  # pyright: ignore[reportArgumentType]


def test_raw_pixels_are_features_too() -> None:
    x = torch.randn(5, 1, 2, 2)
    assert torch.equal(image_features(nn.Flatten(), x.split(2)), x.flatten(1))
