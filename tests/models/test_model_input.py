"""What files say about the input of a network, also where a hand has written them."""

from typing import Any

import pytest

from dualtemp.models.model_input import ModelInput, input_from_json, input_of_timm

COLORS = {"mean": [0.5, 0.25, 0.125], "std": [1, 2, 4]}


@pytest.mark.parametrize("size", [[3, 96, 224], (3, 224, 224), [224], 224, "224"])
def test_timms_input_size_is_its_last_side_or_a_side_alone(size: Any) -> None:
    found = input_of_timm({**COLORS, "input_size": size})
    assert found == ModelInput((0.5, 0.25, 0.125), (1.0, 2.0, 4.0), 224)


@pytest.mark.parametrize("size", [None, [], {}, "large", 0, [3, -1], float("inf"), float("nan"), {"height": 224}])
def test_a_size_that_is_none_is_no_input(size: Any) -> None:
    assert input_of_timm({**COLORS, "input_size": size}) is None
    assert input_from_json({**COLORS, "size": size, "interpolation": "bicubic", "crop": 1.0}) is None
