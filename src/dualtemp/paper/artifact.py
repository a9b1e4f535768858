"""The paper's tables and figures, as declared in artifacts/*.yaml. Needs no torch."""

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from dualtemp.errors import UserError
from dualtemp.grids.artifact import Artifact
from dualtemp.text import did_you_mean, similar_words


@cache
def artifacts() -> dict[str, Artifact]:
    """Return all artifacts by id, in the order of the paper."""
    names = [file.name for file in files("dualtemp.paper").joinpath("artifacts").iterdir()]
    loaded = [_load(name) for name in names if name.endswith(".yaml")]
    return {artifact.id: artifact for artifact in sorted(loaded, key=lambda artifact: artifact.order)}


def select_artifacts(ids: Iterable[str]) -> list[Artifact]:
    """Return the artifacts that a user names; "all" stands for every one."""
    known = artifacts()
    wanted = [name for word in ids for name in (known if word == "all" else (word,))]
    for name in wanted:
        if name not in known:
            near = similar_words(name, [*known, "all"])
            hint = did_you_mean(near) if near else "`dualtemp paper` lists them"
            raise UserError(f"no table or figure is called {name!r}: {hint}")
    return [known[name] for name in dict.fromkeys(wanted)]


def read_yaml(name: str) -> Any:
    """Read a YAML file of this package."""
    return yaml.safe_load(files("dualtemp.paper").joinpath(name).read_text(encoding="utf-8"))


def _load(name: str) -> Artifact:
    values = read_yaml(f"artifacts/{name}")
    return Artifact(**{**values, "claims": tuple(values.get("claims", ()))})
