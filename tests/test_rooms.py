"""The plan of the house: which room may import which. docs/development.md explains it.

All imports count: at the top of a module, inside functions, and those for type checkers alone.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "dualtemp"

# From the ground up. A room is a package or a module; where a module's name stands here too, its own floor counts. It
# may import itself and what stands on lower floors; packages on one floor know nothing of each other.
FLOORS: tuple[tuple[str, ...], ...] = (
    (
        "errors",
        "lazy",
        "renamed",
        "each_parameter",
        "former_modules",
        "temperatures",
        "file_names",
        "first_derivative",
        "standard_streams",
        "torchvision_operators",
    ),
    ("text", "quantities", "lars", "muon", "yaml_file", "t_distribution"),
    ("optimizers", "cache_folder", "device", "machine", "file_lock", "progress_bar", "plugins", "intervals"),
    ("distributed", "atomic_write", "engines"),
    ("kernels",),
    ("losses",),
    ("models", "data"),
    ("frameworks", "bf16_on_cpu", "self_test"),
    ("config",),
    ("frameworks.build",),  # from settings to a framework
    ("runs",),
    ("evaluation",),  # measures of features and of a network in training
    ("training",),
    ("encoder",),
    ("exporting", "analysis"),
    ("report",),
    (  # measures of a finished run, also written onto its page
        "evaluation.evaluate",
        "evaluation.baselines",
        "evaluation.frozen_measures",
        "evaluation.frozen_sample",
        "evaluation.judge_encoders",
        "evaluation.labeled_data",
        "evaluation.predict",
        "evaluation.prediction_files",
        "evaluation.run_classifier",
        "evaluation.tuned_measures",
    ),
    ("grids", "storage"),
    ("paper", "studio"),
    ("api",),
    ("commands",),
    ("cli",),
    ("__main__",),
)
HEIGHT = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

# Doors that open upwards for a while, (importing, imported), and where the code that needs them belongs.
KNOWN_EXCEPTIONS: dict[tuple[str, str], str] = {}


def module_name(path: Path) -> str:
    """The module's name within the package: "losses.hardness"; "" for the package itself."""
    words = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """All imports of a file as (module, name): ("torch.nn", "functional"), ("json", "")."""
    package = path.relative_to(SOURCE.parent).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = package[: len(package) - node.level + 1] if node.level else ()
            yield from ((".".join((*up, *filter(None, [node.module]))), alias.name) for alias in node.names)


def imports_within_the_package() -> Iterator[tuple[str, str]]:
    """(importing module, imported module), by names within the package."""
    for module, path in MODULES.items():
        for name, attribute in imported(path):
            if name.partition(".")[0] == "dualtemp" and (name, attribute) != ("dualtemp", "__version__"):
                whole = f"{name}.{attribute}".removeprefix("dualtemp.")
                yield module, whole if whole in MODULES else name.removeprefix("dualtemp").removeprefix(".")


def room_of(module: str) -> str | None:
    """The longest name in the table that holds the module."""
    words = module.split(".")
    return next((room for n in range(len(words), 0, -1) if (room := ".".join(words[:n])) in HEIGHT), None)


def opens_upwards(module: str, other: str) -> bool:
    """Whether an import breaks the plan."""
    here, there = room_of(module), room_of(other)
    if here is None or (MODULES[module].name == "__init__.py" and other.startswith(f"{module}.")):
        return False  # the package itself, and a room's list of public names, open everything that is theirs
    if there is None:
        return True
    if HEIGHT[here] == HEIGHT[there]:
        return here.partition(".")[0] != there.partition(".")[0]
    return HEIGHT[there] > HEIGHT[here]


UPWARDS = {(module, other) for module, other in imports_within_the_package() if opens_upwards(module, other)}


def test_every_module_has_its_floor() -> None:
    without = [module for module in MODULES if module and room_of(module) is None]
    assert without == [], "say in FLOORS where these stand"


def test_no_room_knows_of_higher_ones() -> None:
    new = sorted(f"{module} imports {other}" for module, other in UPWARDS - set(KNOWN_EXCEPTIONS))
    assert new == [], "move what is needed to a lower room, or hand it in as an argument"


def test_an_exception_that_is_no_longer_needed_is_deleted() -> None:
    assert set(KNOWN_EXCEPTIONS) <= UPWARDS


def test_a_door_that_opens_upwards_would_be_noticed() -> None:
    assert opens_upwards("losses.hardness", "training.start")
    assert opens_upwards("models.heads", "data.images"), "rooms on one floor"
    assert opens_upwards("config", "frameworks.build"), "a module with a floor of its own"
    assert opens_upwards("report.page", ""), "the package itself, which opens everything"
    assert not opens_upwards("training.start", "losses.hardness")
    assert not opens_upwards("losses.modules", "losses.functional")
    assert not opens_upwards("frameworks", "frameworks.build"), "a room's list of public names"


def test_losses_need_torch_alone() -> None:
    standard = {*sys.stdlib_module_names, "dualtemp", "torch"}
    found = {
        f"{module} imports {name}"
        for module, path in MODULES.items()
        for name, _ in imported(path)
        if room_of(module) == "losses" and name.partition(".")[0] not in standard
    }
    assert found == set()


@pytest.mark.parametrize("room", ["config", "frameworks.registry", "runs", "commands", "cli", "api"])
def test_what_help_and_listings_import_needs_no_torch(room: str) -> None:
    needs_it = {"runs.checkpoint"}  # tensors are what it reads and writes
    modules = [f"dualtemp.{name}" for name in MODULES if f"{name}.".startswith(f"{room}.") and name not in needs_it]
    assert modules
    program = f"import {', '.join(modules)}\nimport sys\nprint('torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
