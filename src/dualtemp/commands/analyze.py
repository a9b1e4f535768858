"""What `dualtemp analyze` does: measure a run, and show it as a table, JSON or a figure."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from dualtemp.errors import UserError

ANALYSES = {
    "entropy": "entropy of r_+ by number of keys and temperature (fig:entropy)",
    "similarity": "similarity of r_+ when all keys are drawn anew (fig:abg_similarity)",
    "dictionary": "what the scalar and the vector each lose with fewer keys",
    "neighbours": "which images lie near each other, and whether their labels agree",
}
TAUS = {"entropy": [0.05, 0.1, 0.2, 0.5, 1.0], "similarity": [0.1, 1.0]}  # dictionary: those of the run
ENDINGS = (".svg", ".json")


def add_analyze_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `dualtemp analyze`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(["analyses:", *(f"  {name:<12}{about}" for name, about in ANALYSES.items())])
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("what", metavar="ANALYSIS", help=", ".join(ANALYSES))
    parser.add_argument("--data", metavar="SET|FOLDER|FILE.npz", help="other images than the run's own")
    parser.add_argument("--taus", nargs="+", metavar="X", help="temperatures, also inf (not for neighbours)")
    parser.add_argument("--sizes", nargs="+", metavar="N", help="numbers of keys (not for neighbours)")
    parser.add_argument("--images", type=int, metavar="N", help="how many, for neighbours (default: 2000)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, metavar="FILE.svg|.json", help="write a figure, or what --json prints")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, mps (default: the best there is)")


def run_analyze(given: dict[str, Any]) -> int:
    """Measure, print, write."""
    what, out = _checked(given)
    taus = None if given["taus"] is None else [_temperature(word) for word in _words(given["taus"])]
    sizes = None if given["sizes"] is None else sorted({_size(word) for word in _words(given["sizes"])})
    found = analysed(given["run"], what, given["data"], taus, sizes, given["images"], given["device"])
    text = json.dumps(found, indent=2)
    if out is not None:
        from dualtemp.atomic_write import write_output
        from dualtemp.report.analysis_figure import analysis_figure

        write_output(out, analysis_figure(found) if out.suffix == ".svg" else text + "\n")
    if given["json"]:
        print(text)
        return 0
    from dualtemp.report.analysis_table import print_analysis

    print_analysis(found)
    if out is not None:
        print(out)
    return 0


def analysed(
    path: Path,
    what: str,
    data: str | None = None,
    taus: list[float] | None = None,
    sizes: list[int] | None = None,
    images: int | None = None,
    device: str = "auto",
) -> dict[str, Any]:
    """One analysis of a run with everything that decides it: what --json prints."""
    from dualtemp.analysis.dictionary import by_dictionary_size, usual_sizes
    from dualtemp.analysis.neighbours import IMAGES, neighbours
    from dualtemp.analysis.penalty import measured_entropy, measured_similarity
    from dualtemp.analysis.trained_run import trained_run
    from dualtemp.device import open_device

    run = trained_run(path, open_device(device), data)
    about = {
        "analysis": what,
        "run": str(path),
        "method": run.chosen.method,
        "data": run.chosen.data if data is None else data,
        "step": run.step,
    }
    if what == "neighbours":
        return {**about, **neighbours(run, images or IMAGES)}
    taus = taus or TAUS.get(what) or sorted(set(run.temperatures))
    share = 2 if what == "similarity" else 1
    sizes = sizes or usual_sizes(run, share)
    _check_sizes(sizes, share, run.most_keys)
    keys = "the run's dictionary" if run.holds_keys else "made of the images"
    about |= {"keys_are": keys, "taus": [_plain(tau) for tau in taus], "sizes": sizes}
    if what == "dictionary":
        found = by_dictionary_size(run, taus, sizes)
    else:
        found = (measured_entropy if what == "entropy" else measured_similarity)(run, taus, sizes)._asdict()
    _check_sizes(sizes, share, found["keys"])  # files that cannot be read have no keys
    return {**about, **found}


def _check_sizes(sizes: list[int], share: int, keys: int) -> None:
    if share * min(sizes) > keys:
        draws = " and similarity needs two disjoint draws" if share == 2 else ""
        raise UserError(
            f"--sizes {min(sizes)}: the dictionary has {keys:,} keys{draws}; give at most {keys // share:,}, or leave "
            "--sizes out"
        )


def _checked(given: dict[str, Any]) -> tuple[str, Path | None]:
    """The analysis and the output, before anything is computed."""
    what, out = given["what"], given["out"]
    if what not in ANALYSES:
        from difflib import get_close_matches

        near = get_close_matches(what, ANALYSES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose among {', '.join(ANALYSES)}"
        raise UserError(f"no analysis is called {what!r}: {hint}")
    foreign = ("taus", "sizes") if what == "neighbours" else ("images",)
    for name in foreign:
        if given[name] is not None:
            raise UserError(f"--{name} does not apply to {what}: leave it out")
    if given["images"] is not None and given["images"] < 2:
        raise UserError(f"--images must be at least 2, got {given['images']}")
    if out is not None and (out.suffix not in ENDINGS or out.is_dir()):
        raise UserError(f"--out {out}: a file that ends in {' or '.join(ENDINGS)} is expected")
    return what, out


def _words(given: list[str]) -> list[str]:
    """Values apart, whether by spaces or by commas."""
    return [word for part in given for word in part.split(",") if word] or [""]


def _temperature(word: str) -> float:
    try:
        tau = float(word)
    except ValueError:
        tau = math.nan
    if not tau > 0:
        raise UserError(f"--taus: a number > 0, or inf, is expected, got {word!r}")
    return tau


def _size(word: str) -> int:
    if not word.isascii() or not word.isdigit() or int(word) < 1:
        raise UserError(f"--sizes: whole numbers from 1 on are expected, got {word!r}")
    return int(word)


def _plain(tau: float) -> float | str:
    """JSON has no infinity."""
    return tau if math.isfinite(tau) else "inf"
