"""Refuse results that were made from other weights than their grid's `init` or `teacher` holds now.

A key contains the word that names a start or a teacher, because it is needed before the weights are read. So the hash
of the weights is kept in the result, and compared before the result counts. Needs torch only if there is a hash.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from dualtemp.config import Settings
from dualtemp.errors import UserError
from dualtemp.grids.results import CONTENT_OF, Job
from dualtemp.quantities import counted

CONTENT = "content"  # in a result: {"init": hash, "teacher": hash}; older results lack it


def weights_content(chosen: Settings) -> dict[str, str]:
    """The hashes of a run's start and teacher, by the setting that names them."""
    found = {name: chosen.get(content) for name, content in CONTENT_OF.items()}
    return {name: content for name, content in found.items() if content is not None}


def refuse_other_weights(jobs: Iterable[Job], results: Mapping[str, dict[str, Any] | None]) -> None:
    """Raise UserError if results of jobs, by name, were made from other weights than exist now.

    Weights that no longer exist are not compared, nor are those of the hub, whose names always mean the same weights.
    """
    now: dict[tuple[str, str], str | None] = {}
    differing: dict[str, list[str]] = {}
    for job in jobs:
        for name, content in ((results[job.name] or {}).get(CONTENT) or {}).items():
            word = str(job.settings.get(name))
            if (name, word) not in now:
                now[name, word] = _content_now(name, word, job.settings)
            if now[name, word] not in (None, content):
                differing.setdefault(word, []).append(job.name)
    for word, names in differing.items():
        beside = f" and {counted(len(names) - 1, 'other')}" if len(names) > 1 else ""
        raise UserError(
            f"{names[0]}.json{beside} in the results folder came from other weights than {word} holds now: give these "
            "another path, or remove the results, and they will be computed again"
        )


def _content_now(name: str, word: str, chosen: Settings) -> str | None:
    """The hash of the weights in a file or folder; None if there are none that can be read."""
    if not os.path.exists(word):
        return None
    import torch

    from dualtemp.models.starts import is_start_word
    from dualtemp.training.pretrained import find_start
    from dualtemp.training.teacher import open_teacher

    if is_start_word(word):
        return None
    with suppress(UserError):  # a run that needs these weights reports what is wrong
        return find_start(word).content if name == "init" else open_teacher(chosen, torch.device("cpu")).fingerprint
    return None
