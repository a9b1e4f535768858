"""How to turn an image into the input of an exported encoder, for programs in any language."""

from typing import Any

from dualtemp.data.augment.views import Views
from dualtemp.data.loading.crop_files import enough_pixels
from dualtemp.data.loading.stacks import of_stack

# Pillow's name for 8-bit images of so many channels.
MODES = {1: "L", 3: "RGB"}

DECODE = "upright by the EXIF orientation, first frame, transparent pixels on white, 8 bits a channel"
DECODE_STACK = "first page, all its channels; (value - low) * 255 / (high - low) by `levels`, rounded, within 0 to 255"
DECODE_DEEP = (
    f"{DECODE}; of gray images of more than 8 bits, (value - low) * 255 / (high - low) by `levels`, rounded, within 0 "
    "to 255; DICOM: after slope and intercept, without its window"
)


def preprocessing(views: Views) -> dict[str, Any]:
    """Describe how evaluation prepares an image file, as preprocessing.json has it; views: the run's."""
    channels, size = len(views.mean), views.size
    return {
        "channels": channels,
        "mode": MODES.get(channels),  # None: Pillow has no such images
        "size": size,
        "decode": DECODE if views.levels is None else DECODE_STACK if of_stack(views.levels) else DECODE_DEEP,
        **({} if views.levels is None else {"levels": [list(pair) for pair in views.levels]}),
        "reduce": {  # images far larger than needed
            "enough": enough_pixels(views),
            "jpeg": "decoded at the smallest of 1/1, 1/2, 1/4, 1/8 that leaves the shorter side `enough` pixels",
            "factor": "then shorter // enough, if above 1: the mean of whole squares of pixels (Pillow's reduce)",
        },
        "resize": {
            "shorter_side": views.shorter_side,
            "longer_side": "int(shorter_side * longer / shorter)",
            "interpolation": views.interpolation,
            "antialias": True,
            "rounded": "to 8 bits, as Pillow and torchvision do with 8-bit images",
        },
        "crop": {"place": "centre", "height": size, "width": size, "offset": "round((side - size) / 2)"},
        "value_range": [0.0, 1.0],  # of the pixels that mean and std are meant for
        "mean": list(views.mean),
        "std": list(views.std),
        "layout": "NCHW",
        "dtype": "float32",
    }


def timm_preprocessing(views: Views) -> dict[str, Any]:
    """The same in the words of timm's `pretrained_cfg`."""
    size, side = views.size, views.shorter_side
    # timm resizes to floor(size / crop_pct): half a pixel more keeps rounding from taking one away.
    crop_pct = 1.0 if side == size else size / (side + 0.5)
    return {
        "input_size": [len(views.mean), size, size],
        "interpolation": views.interpolation,
        "crop_pct": crop_pct,
        "crop_mode": "center",
        "mean": list(views.mean),
        "std": list(views.std),
    }
