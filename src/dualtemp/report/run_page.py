"""The page of a run: verdict, pictures, evaluation, curves, settings. Needs no torch."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dualtemp.config import MEASURED_ON, Settings, applicable, complete, settings
from dualtemp.evaluation.judge import forecast, read_judged
from dualtemp.report.curves import run_charts
from dualtemp.report.evaluated_part import evaluated_part
from dualtemp.report.page import link_to, render, write_page
from dualtemp.report.verdict import verdict, verdict_context
from dualtemp.runs.metrics import measures
from dualtemp.runs.record import RunRecord, facts_of, part, read_json, read_run

PAGE = "report.html"
REFRESH = 30  # seconds, while the run trains


def write_run_page(path: Path, out: Path | None = None) -> Path:
    """Write the page of the run in folder `path` to `out`, by default RUN/report.html."""
    out = out or path / PAGE
    return write_page(out, run_page(read_run(path), out))


def run_page(run: RunRecord, out: Path) -> str:
    """Render a run's page as HTML, with links relative to `out`."""
    facts = facts_of(run)
    found = verdict(run.history, facts, *run.status)
    ended = run.status.word != "running" or run.epoch >= run.chosen.epochs
    changed, same = describe_settings(run.chosen)
    groups, measured, environment = run_charts(run), evaluated_part(run), _describe_environment(run.environment)
    shown = _pictures(run)
    return render(
        "run.html.j2",
        {
            "run": run,
            "path": facts.path,
            "refresh": None if ended else REFRESH,
            "verdict": verdict_context(found),
            "figures": _figures(run),
            "groups": groups,
            "evaluated": measured,
            "pictures": shown,
            "contents": _contents(shown, measured, groups, environment),
            "files": _files(run, out),
            "changed": changed,
            "same": same,
            "data": _describe_data(run),
            "environment": environment,
        },
    )


def describe_settings(chosen: Settings) -> tuple[list[tuple[str, str, str, str]], list[tuple[str, str, str, str]]]:
    """Return (name, value, default, description) of the settings that differ from the defaults, and of the rest."""
    default = complete(settings({"data": chosen.data, "method": chosen.method, "epochs": chosen.epochs}), 0)
    usual = {**default.model_dump(), "image_size": chosen.image_size, "epochs": Settings.model_fields["epochs"].default}
    changed, same = [], []
    for name, field in applicable(chosen.method).items():
        value = chosen.get(name)
        row = (name, format_value(value), format_value(usual.get(name)), field.description or "")
        (changed if value != usual.get(name) or name in ("data", "method") else same).append(row)
    return changed, same


def format_value(value: Any) -> str:
    """Format a setting's value briefly."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _figures(run: RunRecord) -> list[tuple[str, str, str]]:
    """Return (name, value, explanation) of the figures at the top of the page."""
    tiles = [(each, each.last(run)) for each in measures().values() if each.tile]
    return [
        ("epochs", f"{run.epoch} of {run.chosen.epochs}", "Epochs done."),
        *((each.name or each.title, each.text(value), each.says) for each, value in tiles if value is not None),
        *_forecast(run),
    ]


def _forecast(run: RunRecord) -> list[tuple[str, str, str]]:
    """The newest forecast of `dualtemp judge`, if the run was judged."""
    judged = read_judged(run.path)
    if not judged:
        return []
    step, found = max(judged.items())
    seen = forecast(found["measures"])
    says = f"Forecast without labels at step {step}, one deviation to each side: for comparing runs on the same images."
    return [("kNN forecast", f"{seen.low:.0f} to {seen.high:.0f} %", says)]


def _contents(
    shown: dict[str, Any] | None, measured: dict[str, Any] | None, groups: Sequence[dict[str, Any]], environment: Any
) -> list[tuple[str, str]]:
    """Return (id, title) of the page's sections, in order."""
    parts = [("pictures", "Pictures")]
    if shown:
        inside = (("anchors", "Hard and easy anchors"), ("neighbours", "Nearest neighbors"), ("map", "Map"))
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
    """Return (name, address) of files in the run's folder worth opening: other pages first."""
    pages = sorted(path for path in run.path.glob("*.html") if path.resolve() != out.resolve())
    others = ("config.yaml", "metrics.jsonl", "evaluation.json", "environment.json", "unreadable.txt")
    there = [*pages, *(path for name in others if (path := run.path / name).is_file())]
    return [(path.name, link_to(path, out)) for path in there]


def _pictures(run: RunRecord) -> dict[str, Any] | None:
    found = read_json(run.path / "pictures.json")
    return found if found and {"sheet", "tile", "columns", "step"} <= found.keys() else None


def _describe_data(run: RunRecord) -> list[tuple[str, str]]:
    """Return (name, value) of what is known about the data."""
    rows = [("source", run.chosen.data)]
    for name, title in (
        ("train", "training images"),
        ("unlabelled", "images without labels"),
        ("test", MEASURED_ON[run.chosen.validate]),
    ):
        about = part(run.environment, name)
        if about.get("images"):
            fingerprint = f" (fingerprint {about['fingerprint']})" if about.get("fingerprint") else ""
            rows.append((title, f"{about['images']:,}{fingerprint}"))
    images = part(run.environment, "images")
    if images.get("size"):
        rows.append(("view", f"{images['size']} px, {images.get('channels')} channels"))
    constants = [
        f"{title} {', '.join(f'{value:.4g}' for value in images[name])}"
        for name, title in (("mean", "mean"), ("std", "deviation"))
        if isinstance(images.get(name), list)
    ]
    if constants:
        rows.append(("normalized with", " and ".join(constants)))
    if isinstance(images.get("classes"), list) and images["classes"]:
        names = [str(name) for name in images["classes"]]
        rows.append(("classes", f"{len(names)}: {', '.join(names[:20])}{' ...' if len(names) > 20 else ''}"))
    elif run.classes:
        rows.append(("classes", str(run.classes)))
    return rows


def _describe_environment(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    parts = {"train", "unlabelled", "test", "images"}
    rows = [(name, value) for name, value in environment.items() if name not in parts and value is not None]
    return [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in rows]
