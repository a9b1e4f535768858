"""The input that a pretrained network was trained with. Needs no torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

INTERPOLATIONS = ("bicubic", "bilinear")
PILLOW = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers, as preprocessor_config.json has them


@dataclass(frozen=True)
class ModelInput:
    """How a network wants its images.

    mean, std: a value a channel, for pixels in [0, 1]; size: side of the square in pixels; interpolation: "bicubic" or
    "bilinear"; crop: the share of the shorter side that the central square shows.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    interpolation: str = "bicubic"
    crop: float = 0.875

    @property
    def channels(self) -> int:
        """Of the images."""
        return len(self.mean)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it; `input_from_json` reads it back."""
        return {**asdict(self), "mean": list(self.mean), "std": list(self.std)}


def input_from_json(values: Any) -> ModelInput | None:
    """Read what `as_json` wrote; None if it is not there or damaged."""
    try:
        mean, std = (tuple(float(value) for value in values[name]) for name in ("mean", "std"))
        interpolation, size, crop = str(values["interpolation"]), int(values["size"]), float(values["crop"])
    except (TypeError, KeyError, ValueError, OverflowError):
        return None
    valid = len(mean) == len(std) > 0 and interpolation in INTERPOLATIONS and size > 0 and 0 < crop <= 1
    return ModelInput(mean, std, size, interpolation, crop) if valid and min(std) > 0 else None


def input_of_timm(config: Mapping[str, Any]) -> ModelInput | None:
    """Read the input from a `pretrained_cfg` of timm; None if it tells none."""
    size = config.get("input_size")  # (channels, height, width); by hand perhaps the side alone
    values = {
        "mean": config.get("mean"),
        "std": config.get("std"),
        "size": size[-1] if isinstance(size, list | tuple) and size else size,
        "interpolation": config.get("interpolation", "bicubic"),
        "crop": config.get("crop_pct", 0.875),
    }
    return input_from_json(values)


def input_of_transformers(config: Mapping[str, Any]) -> ModelInput | None:
    """Read the input from a preprocessor_config.json of Hugging Face; None if it tells none."""
    side, cropped = _side(config.get("size")), _side(config.get("crop_size"))
    if cropped is None or not config.get("do_center_crop", True):
        cropped = side
    crop = config.get("crop_pct") or (min(1.0, cropped / side) if side and cropped else 1.0)
    values = {
        "mean": config.get("image_mean"),
        "std": config.get("image_std"),
        "size": cropped,
        "interpolation": PILLOW.get(config.get("resample", 2), ""),
        "crop": crop,
    }
    return input_from_json(values)


def _side(size: Any) -> int | None:
    """One side of a size, which files write as a number or by names."""
    if isinstance(size, Mapping):
        size = next((size[name] for name in ("shortest_edge", "height") if name in size), None)
    return size if isinstance(size, int) and size > 0 else None
