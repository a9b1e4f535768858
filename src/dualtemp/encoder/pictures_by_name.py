"""Images by their names in a list of features: for thumbnails, and for comparing their content."""

import base64
import io
from hashlib import blake2b
from pathlib import Path

from PIL import Image

from dualtemp.data.images import FileImages, UnreadableImage
from dualtemp.data.loading.stacks import Levels
from dualtemp.encoder.image_list import ImageList
from dualtemp.file_names import valid_text

SIDE = 160  # px; longest side of a thumbnail
CLEAR = 64  # px; images no larger than this are encoded without loss, so that a page can show their pixels


class PicturesByName:
    """The images of a list by their names in feature files; with None, no image is known."""

    def __init__(self, images: ImageList | None) -> None:
        self.images = images
        names = () if images is None else images.names
        self._place = {valid_text(name): i for i, name in enumerate(names)}
        self._digests: dict[str, bytes | None] = {}

    def path(self, name: str) -> Path | None:
        """The file of an image, if it has one of its own."""
        place = self._place.get(name)
        return None if place is None or self.images is None else self.images.path(place)

    def thumbnail(self, name: str) -> str | None:
        """The image as a data URL, at most SIDE px; None if it is not there or cannot be read."""
        place = self._place.get(name)
        if place is None or self.images is None:
            return None
        try:
            return thumbnail_url(self.images.images.source.picture(place, enough=SIDE))
        except UnreadableImage:
            return None

    def digest(self, name: str) -> bytes | None:
        """Digest of the file's bytes, or of the pixels of an image without a file; None if it cannot be read."""
        if name not in self._digests:
            self._digests[name] = self._digest(name)
        return self._digests[name]

    def _digest(self, name: str) -> bytes | None:
        place = self._place.get(name)
        if place is None or self.images is None:
            return None
        try:
            return blake2b(self.images.images.source.content(place), digest_size=16).digest()
        except OSError:
            return None


def thumbnail_of_file(path: Path, levels: Levels | None = None) -> str | None:
    """A thumbnail of an image file, read with an encoder's levels, as a data URL; None if it cannot be read."""
    try:
        return thumbnail_url(FileImages(path.parent, (path.name,), levels=levels).picture(0, enough=SIDE))
    except UnreadableImage:
        return None


def thumbnail_url(picture: Image.Image) -> str:
    """A picture as a data URL: reduced to SIDE px as JPEG, small ones as they are."""
    clear = max(picture.size) <= CLEAR
    if max(picture.size) > SIDE:
        scale = SIDE / max(picture.size)
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        picture = picture.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG" if clear else "JPEG", **({} if clear else {"quality": 82}))
    return f"data:image/{'png' if clear else 'jpeg'};base64,{base64.b64encode(buffer.getvalue()).decode()}"
