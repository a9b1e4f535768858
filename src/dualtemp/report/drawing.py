"""A drawing of lines, dots and words, written as SVG or as PDF, without any library. Needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal
from unicodedata import east_asian_width

KAPPA = 0.5523  # a quarter of a circle as a Bezier curve
# Of Helvetica's letters, in thousandths of its size (Adobe's font metrics); all others: 556.
WIDTHS = {
    letter: width
    for width, letters in {
        191: "'",
        222: "ijl",
        260: "|",
        278: " !,./:;I[\\]ft",
        333: "()-`r",
        334: "{}",
        355: '"',
        389: "*",
        469: "^",
        500: "Jcksvxyz",
        584: "+<=>~",
        611: "FTZ",
        667: "&ABEKPSVXY",
        722: "CDHNRUw",
        778: "GOQ",
        833: "Mm",
        889: "%",
        944: "W",
        1015: "@",
    }.items()
    for letter in letters
}


@dataclass(frozen=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    color: str
    width: float = 1.0


@dataclass(frozen=True)
class Dot:
    """A filled circle."""

    x: float
    y: float
    radius: float
    color: str


@dataclass(frozen=True)
class Text:
    """Words at a point on their base line."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    upward: bool = False
    size: float = 11.0
    color: str = "#333333"


Shape = Line | Dot | Text


def to_svg(shapes: Sequence[Shape], width: float, height: float, title: str) -> str:
    """Return a whole SVG file: white ground, no style sheet, no script."""
    parts = [_svg(shape) for shape in shapes]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}" '
        f'font-family="Helvetica, Arial, sans-serif">\n'
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _svg(shape: Shape) -> str:
    if isinstance(shape, Line):
        return (
            f'<line x1="{shape.x1:.2f}" y1="{shape.y1:.2f}" x2="{shape.x2:.2f}" y2="{shape.y2:.2f}" '
            f'stroke="{shape.color}" stroke-width="{shape.width:g}"/>'
        )
    if isinstance(shape, Dot):
        return f'<circle cx="{shape.x:.2f}" cy="{shape.y:.2f}" r="{shape.radius:g}" fill="{shape.color}"/>'
    turn = f' transform="rotate(-90 {shape.x:.2f} {shape.y:.2f})"' if shape.upward else ""
    return (
        f'<text x="{shape.x:.2f}" y="{shape.y:.2f}" text-anchor="{shape.anchor}" font-size="{shape.size:g}" '
        f'fill="{shape.color}"{turn}>{escape(shape.text)}</text>'
    )


def to_pdf(shapes: Sequence[Shape], width: float, height: float, title: str) -> bytes:
    """Return a PDF of one page with Helvetica, which every reader has; letters beyond Latin-1 become `?`."""
    content = "\n".join(_pdf(shape, height) for shape in shapes).encode("latin-1", "replace")
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width:g} {height:g}] /Contents 5 0 R "
        "/Resources << /Font << /F1 4 0 R >> >> >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        f"<< /Title ({_pdf_words(title)}) /Producer (dualtemp) >>".encode("latin-1", "replace"),
    ]
    file = b"%PDF-1.4\n"
    starts = []
    for number, each in enumerate(objects, 1):
        starts.append(len(file))
        file += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % start for start in starts)
    end = b"trailer\n<< /Size %d /Root 1 0 R /Info 6 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(file))
    return file + b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1) + table + end


def _pdf(shape: Shape, height: float) -> str:
    """Return drawing operators; in a PDF y points up."""
    if isinstance(shape, Line):
        ends = f"{shape.x1:.2f} {height - shape.y1:.2f} m {shape.x2:.2f} {height - shape.y2:.2f} l S"
        return f"{_rgb(shape.color)} RG {shape.width:g} w {ends}"
    if isinstance(shape, Dot):
        x, y, r = shape.x, height - shape.y, shape.radius
        k = KAPPA * r
        quarters = ((x + r, y, x, y + r), (x, y + r, x - r, y), (x - r, y, x, y - r), (x, y - r, x + r, y))
        signs = ((0, k, k, 0), (-k, 0, 0, k), (0, -k, -k, 0), (k, 0, 0, -k))
        curves = " ".join(
            f"{x1 + a:.2f} {y1 + b:.2f} {x2 + c:.2f} {y2 + d:.2f} {x2:.2f} {y2:.2f} c"
            for (x1, y1, x2, y2), (a, b, c, d) in zip(quarters, signs, strict=True)
        )
        return f"{_rgb(shape.color)} rg {x + r:.2f} {y:.2f} m {curves} f"
    back = {"start": 0.0, "middle": 0.5, "end": 1.0}[shape.anchor] * text_width(shape.text, shape.size)
    x, y = (shape.x, height - shape.y - back) if shape.upward else (shape.x - back, height - shape.y)
    turn = "0 1 -1 0" if shape.upward else "1 0 0 1"
    words = _pdf_words(shape.text)
    return f"BT {_rgb(shape.color)} rg /F1 {shape.size:g} Tf {turn} {x:.2f} {y:.2f} Tm ({words}) Tj ET"


def text_width(text: str, size: float) -> float:
    """Return the width of words in Helvetica, which a PDF has; a browser's stand-in may be a little wider."""
    return size * sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> float:
    return WIDTHS.get(letter, 1000 if east_asian_width(letter) in "WF" else 556) / 1000


def _rgb(color: str) -> str:
    return " ".join(f"{int(color[i : i + 2], 16) / 255:.3f}" for i in (1, 3, 5))


def _pdf_words(text: str) -> str:
    plain = text.replace("\N{MINUS SIGN}", "-").replace("\N{EN DASH}", "-")
    return plain.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
