"""The start of one's own photographs where none was asked for: ImageNet's, if it can be had."""

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

    Returns None if it begins from nothing; with a sentence, if only because no start can be had.
    """
    if not prefers_start(chosen, splits):
        return None, ""
    try:
        return distributed.run_on_rank0(lambda: find_start(IMAGENET)), ""
    except UserError:
        return None, (
            "starting from nothing, for no pretrained start can be had: the Hugging Face hub does not answer, and "
            "dualtemp[pretrained] is not installed; with either, photographs are learned better and sooner"
        )


def prefers_start(chosen: Settings, splits: Splits) -> bool:
    """Whether these are somebody's own photographs, and nothing that was asked for speaks against a start.

    A backbone or a small image size of one's own choice does, and so do `--init none`, labels to learn from, and a
    teacher, whose student is to be small.
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
