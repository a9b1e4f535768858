"""The default start for the user's own photographs: ImageNet's, if it is available."""

from dualtemp import distributed
from dualtemp.config import Settings, given_settings
from dualtemp.data.images import Splits
from dualtemp.data.sources.opening import is_named_set
from dualtemp.errors import UserError
from dualtemp.models.starts import IMAGENET, Start
from dualtemp.training.own_images import facts_of
from dualtemp.training.pretrained import find_start
from dualtemp.training.sensible_settings import PHOTOGRAPH


def default_start(chosen: Settings, splits: Splits) -> tuple[Start | None, str]:
    """Find the start that a run on such images begins from by default.

    Returns None if it begins from nothing, with a message if the only reason is that no start is available.
    """
    if not prefers_start(chosen, splits):
        return None, ""
    try:
        return distributed.run_on_rank0(lambda: find_start(IMAGENET)), ""
    except UserError:
        return None, (
            "starting from nothing, since no pretrained start is available: the Hugging Face hub does not answer, and "
            "dualtemp[pretrained] is not installed; with either, training on photographs gets further and faster"
        )


def prefers_start(chosen: Settings, splits: Splits) -> bool:
    """Whether these are a user's own photographs, and no setting rules out a start.

    What rules it out: a backbone or a small image size that the user chose, `--init none`, a framework that learns from
    labels, and a teacher (its student should be small).
    """
    given = given_settings(chosen)
    if is_named_set(chosen.data) or {"init", "backbone"} & given.keys():
        return False
    if (
        chosen.get("teacher") is not None
        or chosen.framework.learns_from_labels
        or given.get("image_size", PHOTOGRAPH) < PHOTOGRAPH
    ):
        return False
    facts, _, _ = facts_of(splits.pretraining, splits)
    return facts.side >= PHOTOGRAPH and splits.train.channels in (1, 3)
