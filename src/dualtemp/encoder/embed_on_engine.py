"""Compute a folder of features on an engine: each part is a task that any process on any machine starts or resumes."""

import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dualtemp.data.sources.opening import absolute_source
from dualtemp.encoder.embed import Embedded, embed, refuse_other_division
from dualtemp.encoder.embedding_parts import Share, check_parts, parts_begun
from dualtemp.engines.engine import Engine, Place, Submitted, Task
from dualtemp.engines.terminable import terminable
from dualtemp.errors import UserError

ATTEMPTS = 2  # at a part whose process is lost; attempts that were stopped do not count


def count_parts(out: Path, parts: int | None, jobs: int | None) -> int:
    """The number of parts of a folder: as asked for, else as it was begun, else one per job."""
    if out.suffix and not out.is_dir():
        raise UserError(f"{out}: --on fills a folder: give --out a name without an ending, such as {out.stem}")
    count = parts if parts is not None else max(parts_begun(out), default=jobs or 0)
    if not count and parts is None:
        raise UserError("--on slurm and --on ray: give --parts, each of which is a job, such as --parts 64")
    check_parts(count)
    refuse_other_division(out, {count})
    return count


def embed_on(
    engine: Engine,
    run: Path,
    *,
    out: Path,
    parts: int,
    progress: Callable[[int, int], None] | None = None,
    **words: Any,
) -> Embedded:
    """Compute all parts of a folder on an engine, then close it; words: further arguments of `embed`.

    Finished parts are not computed again. If the process of a part is lost, another continues it. progress: called with
    the number of parts that are done, and of all.
    """
    run = run.absolute() if run.exists() else run  # otherwise it names a start
    words = {**words, "data": None if words.get("data") is None else absolute_source(words["data"])}

    def task(part: int) -> Task:
        return Task(f"part {part} of {parts}", embed_part, (run, out.absolute(), Share(part, parts), words))

    with terminable():
        try:
            made = _carry_out(engine, parts, task, progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped; the same command continues") from None
        finally:
            engine.close()
    problems = {name: reason for each in made.values() for name, reason in each.unreadable.items()}
    images, resumed = (
        sum(counts) for counts in zip(*((each.images, each.resumed) for each in made.values()), strict=True)
    )
    return Embedded(out, images, made[0].features, problems, resumed)


def _carry_out(
    engine: Engine, parts: int, task: Callable[[int], Task], progress: Callable[[int, int], None] | None
) -> dict[int, Embedded]:
    """Run the tasks of all parts, and a lost one once more; returns their results."""
    waiting, submitted = deque(range(parts)), list[tuple[int, Submitted]]()
    lost, made = Counter[int](), dict[int, Embedded]()
    while waiting or submitted:
        some = [waiting.popleft() for _ in range(min(engine.at_once - len(submitted), len(waiting)))]
        if some:
            submitted += zip(some, engine.submit([task(i) for i in some]), strict=True)
        running = []
        for part, each in submitted:
            outcome = each.outcome()
            if outcome is None:
                running.append((part, each))
            elif outcome.lost or outcome.stopped:
                lost[part] += bool(outcome.lost)
                if lost[part] == ATTEMPTS:
                    raise UserError(f"part {part} of {parts}: {outcome.lost}, twice; the same command continues")
                waiting.append(part)
            else:
                made[part] = outcome.value
                if progress is not None:
                    progress(len(made), parts)
        submitted = running
        time.sleep(engine.pause)
    return made


def embed_part(place: Place, run: Path, out: Path, share: Share, words: dict[str, Any]) -> Embedded:
    """Compute one part in a process of the engine; all its threads but one are also workers that read images."""
    import torch

    torch.set_num_threads(place.threads)
    given = {"workers": place.threads - 1, **words}
    return embed(run, out=out, share=f"{share.part}/{share.parts}", device=place.device, **given)
