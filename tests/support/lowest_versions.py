"""Print the lowest versions that pyproject.toml promises, as constraints for pip; those of torch and pytest are pinned.

`make test-oldest` installs them. Of several bounds of one package the highest counts.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PINNED = ("torch", "torchvision", "triton", "hypothesis", "pytest", "pytest-xdist")  # too large to try, or only a tool


def numbers(version: str) -> tuple[int, ...]:
    """1.0.16 -> (1, 0, 16), for comparing."""
    return tuple(int(word) for word in re.findall(r"\d+", version))


def declared() -> list[str]:
    """All requirements of pyproject.toml, those of extras included, but not the package itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    return [word for words in lists for word in words if not word.startswith("dualtemp[")]


def lowest() -> dict[str, str]:
    """The lower bound of every requirement that has one, by lower-case name."""
    found: dict[str, str] = {}
    for word in declared():
        name, _, bound = re.sub(r"\[.*?\]", "", word).partition(">=")
        if bound and numbers(bound) > numbers(found.get(name.lower(), "0")):
            found[name.lower()] = bound
    return found


def pinned() -> dict[str, str]:
    """What the suite usually runs with: constraints.txt, by lower-case name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if "==" in line)
    return {name.lower(): version for name, version in pairs}


if __name__ == "__main__":
    for package, version in sorted({**lowest(), **{name: pinned()[name] for name in PINNED}}.items()):
        print(f"{package}=={version}")
