"""The diagram, as SVG, of how the frameworks are derived from each other (fig:framework_bridge)."""

BOXES = {
    "MoCo v2": (0, 0, "momentum, dictionary", "one temperature"),
    "SimMoCo": (1, 0, "momentum, batch", "two temperatures"),
    "SimCo": (2, 0, "no momentum, batch", "two temperatures"),
    "BYOL": (1, 1, "momentum, predictor", "no negatives"),
    "SimSiam": (2, 1, "no momentum, predictor", "no negatives"),
}
ARROWS = (
    ("MoCo v2", "SimMoCo", "dictionary", "removed"),
    ("SimMoCo", "SimCo", "momentum", "removed"),
    ("SimMoCo", "BYOL", "negatives out,", "predictor in"),
    ("SimCo", "SimSiam", "negatives out,", "predictor in"),
    ("BYOL", "SimSiam", "momentum", "removed"),
)
WIDE, HIGH, STEP_X, STEP_Y, LEFT, TOP = 170, 70, 275, 150, 6, 10


def frameworks_diagram() -> str:
    """Draw the diagram."""
    boxes = "".join(_box(name, *box) for name, box in BOXES.items())
    arrows = "".join(_arrow(*arrow) for arrow in ARROWS)
    head = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="head" d="M0 0 8 4 0 8z"/></marker></defs>'
    )
    label = "MoCo v2 becomes SimMoCo, then SimCo; without negatives these are BYOL and SimSiam"
    return f'<svg class="chart" viewBox="0 0 732 242" role="img" aria-label="{label}">{head}{arrows}{boxes}</svg>'


def _corner(column: int, row: int) -> tuple[int, int]:
    return LEFT + column * STEP_X, TOP + row * STEP_Y


def _box(name: str, column: int, row: int, first: str, second: str) -> str:
    x, y = _corner(column, row)
    middle = x + WIDE / 2
    return (
        f'<rect class="box" x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="8"/>'
        f'<text class="name" x="{middle}" y="{y + 23}" text-anchor="middle">{name}</text>'
        f'<text class="tick" x="{middle}" y="{y + 42}" text-anchor="middle">{first}</text>'
        f'<text class="tick" x="{middle}" y="{y + 58}" text-anchor="middle">{second}</text>'
    )


def _arrow(start: str, end: str, first: str, second: str) -> str:
    (x1, y1), (x2, y2) = (_corner(*BOXES[name][:2]) for name in (start, end))
    if y1 == y2:
        x1, y1, x2, y2 = x1 + WIDE, y1 + HIGH // 2, x2 - 3, y2 + HIGH // 2
        middle, above, below, anchor = (x1 + x2) / 2, y1 - 8, y1 + 18, "middle"
    else:
        x1, y1, x2, y2 = x1 + WIDE // 2, y1 + HIGH, x2 + WIDE // 2, y2 - 3
        middle, above, below, anchor = x1 + 10, (y1 + y2) / 2 - 2, (y1 + y2) / 2 + 14, "start"
    return (
        f'<line class="arrow" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" marker-end="url(#head)"/>'
        f'<text class="tick" x="{middle}" y="{above}" text-anchor="{anchor}">{first}</text>'
        f'<text class="tick" x="{middle}" y="{below}" text-anchor="{anchor}">{second}</text>'
    )
