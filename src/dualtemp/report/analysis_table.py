"""An analysis on the terminal."""

import math
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

MEASURES = {
    "W": "mean W",
    "W_spread": "spread of W",
    "scalar_correlation": "log W: r",
    "scalar_similarity": "r_+: cos",
    "vector_similarity": "vector: cos",
    "effective_negatives": "eff. negatives",
}
EXPLANATIONS = {
    "entropy": "Entropy of r_+ in nats; {most:.4f} = log {anchors} if all {anchors} anchors of a batch have equal "
    "weight. Columns: number of newest keys.",
    "similarity": "Cosine similarity of r_+ with r_+ of the same anchors, but other positives and other negatives. "
    "Columns: keys of each draw.",
    "dictionary": "Newest keys against all {keys:,}: r (Pearson correlation of log W) and the cosine of r_+ show what "
    "is left of the scalar, the cosine of sum_j p^_ij k_j what is left of the vector; eff. negatives: exp of the "
    "entropy of p^.",
}


def print_analysis(found: dict[str, Any]) -> None:
    """Print a title, the table, and a line that explains it."""
    console = Console(highlight=False)
    step = f"step {found['step']:,}"
    console.print(
        f"[bold]{found['analysis']}[/bold] of {escape(found['run'])}: {found['method']}, {step}, images of "
        f"{escape(found['data'])}",
        soft_wrap=True,
    )
    {"neighbours": _neighbors, "dictionary": _dictionary}.get(found["analysis"], _curves)(found, console)


def _curves(found: dict[str, Any], console: Console) -> None:
    table = _table("tau", *(f"{size:,}" for size in found["sizes"]))
    for tau, values in found["values"].items():
        table.add_row(tau, *(_number(values[str(size)], 6) for size in found["sizes"]))
    console.print(table)
    _explain(found, console)


def _dictionary(found: dict[str, Any], console: Console) -> None:
    table = _table("tau", "keys", *MEASURES.values())
    for tau, by_size in found["values"].items():
        for size, values in by_size.items():
            shown = [
                "-" if values is None else _number(values[name], 1 if name == "effective_negatives" else 4)
                for name in MEASURES
            ]
            table.add_row(tau, f"{int(size):,}", *shown)
        table.add_section()
    console.print(table)
    _explain(found, console)


def _explain(found: dict[str, Any], console: Console) -> None:
    anchors, keys = found["anchors"], found["keys"]
    text = EXPLANATIONS[found["analysis"]].format(most=math.log(anchors), anchors=anchors, keys=keys)
    console.print(f"{text} Keys: {found['keys_are']}.", soft_wrap=True)
    draws = 2 if found["analysis"] == "similarity" else 1
    if lacking := [f"{size:,}" for size in found["sizes"] if draws * size > found["keys"]]:
        why = "; similarity needs two disjoint draws" if draws == 2 else ""
        console.print(
            f"- for {', '.join(lacking)} keys: the dictionary has {found['keys']:,} keys{why}.", soft_wrap=True
        )


def _neighbors(found: dict[str, Any], console: Console) -> None:
    known = {k: share for k, share in found["agreement"].items() if share is not None}
    console.print(f"{found['images']:,} {found['part']} images, each against the others, by cosine of features.")
    if known:
        table = _table("nearest", "same label", "by chance")
        for k, share in known.items():
            table.add_row(k, f"{share:.1%}", "-" if found["chance"] is None else f"{found['chance']:.1%}")
        console.print(table)
    else:
        console.print("There are no labels.")
    if found["confused"]:
        table = _table("class", "its neighbors are also", "share", left=2)
        for pair in found["confused"]:
            table.add_row(escape(pair["class"]), escape(pair["other"]), f"{pair['share']:.1%}")
        console.print(table)
    table = _table("image", "nearest, with cosine", left=2)
    for row in found["rows"]:
        table.add_row(_called(row["query"]), ", ".join(f"{_called(each)} {each['s']:.2f}" for each in row["found"][:3]))
    console.print(table)


def _called(image: dict[str, Any]) -> str:
    named = image["label"] is None or image["label"] in image["name"].split("/")  # a class folder names the class
    return escape(image["name"] if named else f"{image['name']} ({image['label']})")


def _table(*columns: str, left: int = 1) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < left else "right")
    return table


def _number(value: float | None, places: int) -> str:
    return "-" if value is None else f"{value:,.{places}f}"
