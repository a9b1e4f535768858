"""ImageNet-100: the 100 classes of ImageNet that contrastive learning papers use since Tian et al. (CMC, 2020)."""

from pathlib import Path

from dualtemp.data.images import Splits
from dualtemp.data.sources.cache import cache_folder
from dualtemp.data.sources.folder import TEST_NAMES, open_folder
from dualtemp.errors import UserError

WNIDS = """
    n01558993 n01692333 n01729322 n01735189 n01749939 n01773797 n01820546 n01855672 n01978455 n01980166 n01983481
    n02009229 n02018207 n02085620 n02086240 n02086910 n02087046 n02089867 n02089973 n02090622 n02091831 n02093428
    n02099849 n02100583 n02104029 n02105505 n02106550 n02107142 n02108089 n02109047 n02113799 n02113978 n02114855
    n02116738 n02119022 n02123045 n02138441 n02172182 n02231487 n02259212 n02326432 n02396427 n02483362 n02488291
    n02701002 n02788148 n02804414 n02859443 n02869837 n02877765 n02974003 n03017168 n03032252 n03062245 n03085013
    n03259280 n03379051 n03424325 n03492542 n03494278 n03530642 n03584829 n03594734 n03637318 n03642806 n03764736
    n03775546 n03777754 n03785016 n03787032 n03794056 n03837869 n03891251 n03903868 n03930630 n03947888 n04026417
    n04067472 n04099969 n04111531 n04127249 n04136333 n04229816 n04238763 n04336792 n04418357 n04429376 n04435653
    n04485082 n04493381 n04517823 n04589890 n04592741 n07714571 n07715103 n07753275 n07831146 n07836838 n13037406
    n13040303
"""
CLASSES = frozenset(WNIDS.split())


def open_imagenet100(root: Path | None = None, labels: bool = True) -> Splits:
    """Open the 100 classes of an ImageNet folder (train/WNID/*.JPEG, val/WNID/*.JPEG; other classes are ignored).

    root: that folder; by default `imagenet100` or `imagenet` in the cache folder. Nothing is downloaded.
    """
    places = [root] if root else [cache_folder() / name for name in ("imagenet100", "imagenet")]
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        raise UserError(
            f"imagenet100: no folder {places[-1]}; expected ImageNet's train/WNID/*.JPEG and val/WNID/*.JPEG there "
            "(link it, or set DUALTEMP_DATA); it must be fetched from image-net.org by hand"
        )
    tests = [name for name in TEST_NAMES if (folder / name).is_dir()]
    for part in ("train", tests[-1] if tests else "val"):  # val/ before test/: ImageNet's own test/ has no labels
        missing = sorted(name for name in CLASSES if not (folder / part / name).is_dir())
        if missing:
            raise UserError(
                f"imagenet100: {folder / part} lacks {len(missing)} of the 100 class folders, the first {missing[0]}; "
                f"expected {part}/WNID/*.JPEG"
            )
    return open_folder(folder, "imagenet100", labels, only_classes=CLASSES)
