"""A user's request for tables and figures of the paper."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dualtemp.grids.data_choice import DataChoice
from dualtemp.grids.listed_command import words_for_one_run
from dualtemp.grids.results import Job
from dualtemp.paper.artifact import artifacts, select_artifacts
from dualtemp.paper.plan import PaperPlan, plan
from dualtemp.paper.scale import load_scale


@dataclass(frozen=True)
class Request:
    """A user's request, in the words of the command line."""

    ids: Sequence[str]
    scale: str = "unequal"
    seeds: tuple[int, ...] = (1, 2, 3)
    data: Sequence[str] = ()
    results: Path = Path("results")
    validate: str = "test"

    def make_plan(self) -> PaperPlan:
        """Plan the requested cells and runs."""
        scale = load_scale(self.scale)
        if self.validate != "test":
            scale = scale.with_settings({"validate": self.validate})
        data = DataChoice.parse(list(self.data))
        if data.named:
            whole = plan(list(artifacts().values()), scale, DataChoice(data.all))
            data.refuse_unused(run.settings["data"] for run in whole.runs.values())
        return plan(select_artifacts(self.ids), scale, data)

    def command(self, job: Job, retry: bool = False) -> str:
        """Return the command that executes this run alone; retry: also if it has failed."""
        words = ["dualtemp", "reproduce", *self.ids, "--scale", self.scale, "--seeds", f"{job.settings.seed},"]
        words += [word for data in self.data for word in ("--data", data)]
        words += [*self.validate_flags(), "--results", str(self.results)]
        return shlex.join([*words, *words_for_one_run(job, retry)])

    def validate_flags(self) -> list[str]:
        """Return the flags that choose the images to measure on."""
        return [] if self.validate == "test" else ["--validate", self.validate]
