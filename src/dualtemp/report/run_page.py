"""The page of a run: verdict, pictures, what was evaluated, curves, settings. Needs no torch."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dualtemp.config import MEASURED_ON, Settings, applicable, complete, settings
from dualtemp.report.curves import run_charts
from dualtemp.report.evaluated_part import evaluated_part
from dualtemp.report.page import link_to, rendered, write_page
from dualtemp.report.verdict import told, verdict
from dualtemp.runs.metrics import measures
from dualtemp.runs.record import RunRecord, facts_of, part, read_json, read_run

PAGE = "report.html"
REFRESH = 30  # seconds, while the run goes on


def write_run_page(path: Path, out: Path | None = None) -> Path:
    """Write the page of the run in folder `path` from what is there; RUN/report.html unless `out` says otherwise."""
    out = out or path / PAGE
    return write_page(out, run_page(read_run(path), out))


def run_page(run: RunRecord, out: Path) -> str:
    """The page of a run as HTML, with links for the place that it is written to."""
    facts = facts_of(run)
    found = verdict(run.history, facts, *run.status)
    ended = run.status.word != "running" or run.epoch >= run.chosen.epochs
    changed, same = settings_told(run.chosen)
    groups, measured, environment = run_charts(run), evaluated_part(run), _environment_told(run.environment)
    shown = _pictures(run)
    return rendered(
        "run.html.j2",
        {
            "run": run,
            "path": facts.path,
            "refresh": None if ended else REFRESH,
            "verdict": told(found),
            "figures": _figures(run),
            "groups": groups,
            "evaluated": measured,
            "pictures": shown,
            "contents": _contents(shown, measured, groups, environment),
            "files": _files(run, out),
            "changed": changed,
            "same": same,
            "data": _data_told(run),
            "environment": environment,
        },
    )


def settings_told(chosen: Settings) -> tuple[list[tuple[str, str, str, str]], list[tuple[str, str, str, str]]]:
    """(name, value, default, what it is) of the settings that differ from the framework's defaults; and of the rest."""
    default = complete(settings({"data": chosen.data, "method": chosen.method, "epochs": chosen.epochs}), 0)
    usual = {**default.model_dump(), "image_size": chosen.image_size, "epochs": Settings.model_fields["epochs"].default}
    changed, same = [], []
    for name, field in applicable(chosen.method).items():
        value = chosen.get(name)
        row = (name, shown(value), shown(usual.get(name)), field.description or "")
        (changed if value != usual.get(name) or name in ("data", "method") else same).append(row)
    return changed, same


def shown(value: Any) -> str:
    """A setting's value as config.yaml would have it, in short."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _figures(run: RunRecord) -> list[tuple[str, str, str]]:
    """(name, value, what it says) of the figures at the top of the page."""
    tiles = [(each, each.last(run)) for each in measures().values() if each.tile]
    return [
        ("epochs", f"{run.epoch} of {run.chosen.epochs}", "Epochs that are done."),
        *((each.name or each.title, each.text(value), each.says) for each, value in tiles if value is not None),
    ]


def _contents(
    shown: dict[str, Any] | None, measured: dict[str, Any] | None, groups: Sequence[dict[str, Any]], environment: Any
) -> list[tuple[str, str]]:
    """(id, title) of what is on the page, in its order."""
    parts = [("pictures", "Pictures")]
    if shown:
        inside = (("anchors", "Hard and easy anchors"), ("neighbours", "Nearest neighbours"), ("map", "Map"))
        parts = [(f"pictures-{name}", title) for name, title in inside if shown.get(name)]
    if measured:
        parts += [("evaluated", "Evaluated"), *([("classes", "Class by class")] if measured["classes"] else [])]
    parts += [(group["id"], group["title"].partition(":")[0]) for group in groups]
    return [
        *parts,
        ("settings", "Settings"),
        ("data", "Data"),
        *([("environment", "Environment")] if environment else []),
    ]


def _files(run: RunRecord, out: Path) -> list[tuple[str, str]]:
    """(name, address) of what lies in the run's folder and can be looked at: other pages first."""
    pages = sorted(path for path in run.path.glob("*.html") if path.resolve() != out.resolve())
    others = ("config.yaml", "metrics.jsonl", "evaluation.json", "environment.json", "unreadable.txt")
    there = [*pages, *(path for name in others if (path := run.path / name).is_file())]
    return [(path.name, link_to(path, out)) for path in there]


def _pictures(run: RunRecord) -> dict[str, Any] | None:
    found = read_json(run.path / "pictures.json")
    return found if found and {"sheet", "tile", "columns", "step"} <= found.keys() else None


def _data_told(run: RunRecord) -> list[tuple[str, str]]:
    """What is known of the data, in words."""
    told = [("source", run.chosen.data)]
    for name, title in (
        ("train", "training images"),
        ("unlabelled", "images without labels"),
        ("test", MEASURED_ON[run.chosen.validate]),
    ):
        about = part(run.environment, name)
        if about.get("images"):
            fingerprint = f" (fingerprint {about['fingerprint']})" if about.get("fingerprint") else ""
            told.append((title, f"{about['images']:,}{fingerprint}"))
    images = part(run.environment, "images")
    if images.get("size"):
        told.append(("a view", f"{images['size']} px, {images.get('channels')} channels"))
    constants = [
        f"{title} {', '.join(f'{value:.4g}' for value in images[name])}"
        for name, title in (("mean", "mean"), ("std", "deviation"))
        if isinstance(images.get(name), list)
    ]
    if constants:
        told.append(("normalised with", " and ".join(constants)))
    if isinstance(images.get("classes"), list) and images["classes"]:
        names = [str(name) for name in images["classes"]]
        told.append(("classes", f"{len(names)}: {', '.join(names[:20])}{' ...' if len(names) > 20 else ''}"))
    elif run.classes:
        told.append(("classes", str(run.classes)))
    return told


def _environment_told(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    parts = {"train", "unlabelled", "test", "images"}
    rows = [(name, value) for name, value in environment.items() if name not in parts and value is not None]
    return [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in rows]
