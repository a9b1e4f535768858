"""Runs that begin from pretrained weights: the network and input that these imply, and what is recorded about them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from dualtemp import distributed
from dualtemp.config import Settings, given_settings
from dualtemp.errors import UserError
from dualtemp.models.backbones import SHORT_NAMES
from dualtemp.models.model_input import ModelInput, input_from_json
from dualtemp.models.starts import NONE, Start, open_start
from dualtemp.runs.folder import RunFolder
from dualtemp.training.run_data import known_environment


def start_of(chosen: Settings) -> Start | None:
    """Find and read a new run's start, on rank 0 for all processes; None if it starts from nothing."""
    word = chosen.init
    if word is None or word == NONE:
        return None
    return distributed.run_on_rank0(lambda: find_start(word))


def find_start(word: str) -> Start:
    """Find and read a start. If it is a run, add its network, and its input if that came from a start."""
    found, run = open_start(word), RunFolder(Path(word))
    if found.network is not None or not run.config.is_file():
        return found
    return replace(found, network=run.settings().backbone, input=input_of_run(run))


def with_start(chosen: Settings, start: Start) -> Settings:
    """Fill in the settings that a start implies: the backbone, the size of views, and the hash of its content."""
    given = given_settings(chosen)
    values: dict[str, Any] = {"init": start.word, "init_content": start.content}
    if start.network is not None:
        values["backbone"] = given.get("backbone", start.network)
        is_run = RunFolder(Path(start.word)).config.is_file()  # a run's network may have another name and still fit
        asked, found = (SHORT_NAMES.get(name, name) for name in (values["backbone"], start.network))
        if not is_run and asked != found:
            raise UserError(
                f"backbone {values['backbone']} contradicts --init {start.word}, which is a {start.network}: leave "
                "--backbone out"
            )
    if start.input is not None and "image_size" not in given:
        values["image_size"] = start.input.size
    if chosen.init_content not in (None, start.content):
        raise UserError(
            f"--init {start.word} has other content ({start.content}) than init_content says ({chosen.init_content}): "
            "put the weights back, or leave init_content out"
        )
    return chosen.model_copy(update=values)


def is_pretrained(start: Start | None) -> bool:
    """Whether a start is a published network whose input is known, not a run of the user's own."""
    return start is not None and start.input is not None and not RunFolder(Path(start.word)).config.is_file()


def describe_start(start: Start | None) -> dict[str, Any]:
    """The entries of environment.json about a start; empty if the run starts from nothing."""
    if start is None:
        return {}
    known = None if start.input is None else start.input.as_json()
    return {"start": {"word": start.word, "origin": start.origin, "network": start.network, "input": known}}


def input_of_start(run: RunFolder) -> ModelInput | None:
    """Return the recorded input of the start that a run began from; None if it was not known."""
    return input_from_json(_recorded(run).get("input"))


def input_of_run(run: RunFolder) -> ModelInput | None:
    """Return a run's input if it came from a start; None if it came from the run's images."""
    given, images = input_of_start(run), run.read_environment().get("images")
    if given is None or not isinstance(images, dict):
        return None
    return input_from_json({**images, "interpolation": given.interpolation, "crop": given.crop})


def _recorded(run: RunFolder) -> dict[str, Any]:
    found = known_environment(run, run.settings()).get("start")
    return found if isinstance(found, dict) else {}
