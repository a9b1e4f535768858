"""Thumbnails of many images in one picture, which the page requests in batches and cuts up."""

import io
import threading
from collections import OrderedDict
from collections.abc import Sequence

from PIL import Image

from dualtemp.data.loading.decode import UnreadableImage
from dualtemp.studio.collection import Collection

COLUMNS = 8
MOST = 64  # thumbnails on a sheet
SIDES = (48, 96, 160)  # px
KEPT_BYTES = 96 << 20  # of cached thumbnails
LARGEST = 1280  # px; longest side of an image that is viewed alone
ENLARGED = 64  # px; images up to this size are enlarged by a whole factor, so that their pixels stay sharp
GONE = (128, 128, 128)


class ThumbnailSheets:
    """Makes thumbnails of a collection on demand, and keeps the newest in memory."""

    def __init__(self, images: Collection) -> None:
        self.images = images
        self._kept: OrderedDict[tuple[int, int], Image.Image] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def sheet(self, numbers: Sequence[int], side: int) -> bytes:
        """A JPEG with the thumbnails of these images, COLUMNS per row, each `side` px high and wide."""
        rows = -(-len(numbers) // COLUMNS)
        sheet = Image.new("RGB", (min(len(numbers), COLUMNS) * side, rows * side), GONE)
        for place, number in enumerate(numbers):
            tile = self._tile(number, side)
            if tile is not None:
                sheet.paste(tile, (place % COLUMNS * side, place // COLUMNS * side))
        return _jpeg(sheet, 86)

    def image(self, number: int) -> bytes | None:
        """One image, re-encoded as a JPEG of at most LARGEST px; None if it is not available."""
        try:
            picture = self.images.picture(number, enough=LARGEST)
        except (UnreadableImage, OSError):
            return None
        if picture is None:
            return None
        picture = picture.convert("RGB")
        if max(picture.size) > LARGEST:
            picture.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS, reducing_gap=3.0)
        elif max(picture.size) <= ENLARGED:
            factor = -(-320 // max(picture.size))
            picture = picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
        return _jpeg(picture, 90)

    def _tile(self, number: int, side: int) -> Image.Image | None:
        key = (number, side)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        try:
            picture = self.images.picture(number, enough=side)
        except (UnreadableImage, OSError):
            return None
        if picture is None:
            return None
        tile = square(picture.convert("RGB"), side)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = tile
                self._bytes += 3 * side * side
            while self._bytes > KEPT_BYTES:
                (_, old), _ = self._kept.popitem(last=False)
                self._bytes -= 3 * old * old
        return tile


def square(picture: Image.Image, side: int) -> Image.Image:
    """The middle square of a picture, resized; a small one is enlarged sharply first."""
    small = min(picture.size)
    left, top = (picture.width - small) // 2, (picture.height - small) // 2
    box = (left, top, left + small, top + small)
    if small <= ENLARGED and small < side:
        factor = -(-side // small)
        picture = picture.crop(box).resize((small * factor, small * factor), Image.Resampling.NEAREST)
        return picture.resize((side, side), Image.Resampling.BOX)
    return picture.resize((side, side), Image.Resampling.LANCZOS, box=box, reducing_gap=2.0)


def _jpeg(picture: Image.Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()
