import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dualtemp.report.drawing import Dot, Line, Shape, Text, text_width, to_pdf, to_svg

SHAPES: list[Shape] = [
    Line(10, 10, 190, 10, "#ff0000", 4),
    Dot(100, 60, 20, "#0000ff"),
    Text(100, 110, "a (b) \\ <c> & d", "middle", color="#00aa00", size=20),
    Text(20, 60, "up", "middle", upward=True),
]


def test_the_svg_is_xml_with_every_shape() -> None:
    root = ET.fromstring(to_svg(SHAPES, 200, 120, 'a "title" & <more>'))
    kinds = [child.tag.rpartition("}")[2] for child in root]
    assert kinds == ["rect", "line", "circle", "text", "text"]
    assert [child.text for child in root][3] == "a (b) \\ <c> & d"
    assert root.get("aria-label") == 'a "title" & <more>'


def test_every_offset_of_the_pdf_is_where_an_object_begins() -> None:
    file = to_pdf(SHAPES, 200, 120, "title (with brackets)")
    start = int(re.findall(rb"startxref\n(\d+)\n", file)[0])
    assert file[start : start + 4] == b"xref"
    for number, offset in enumerate(re.findall(rb"^(\d{10}) 00000 n ", file, re.M), 1):
        assert file[int(offset) :].startswith(b"%d 0 obj" % number)
    length, content = re.findall(rb"<< /Length (\d+) >>\nstream\n(.*?)\nendstream", file, re.S)[0]
    assert int(length) == len(content)


@pytest.mark.skipif(shutil.which("pdftoppm") is None, reason="poppler-utils are not installed")
def test_a_pdf_reader_shows_the_shapes_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(to_pdf(SHAPES, 200, 120, "t"))
    subprocess.run(["pdftoppm", "-r", "72", "-png", "a.pdf", "a"], cwd=tmp_path, check=True)
    picture = Image.open(next(tmp_path.glob("a*.png"))).convert("RGB")
    assert picture.size == (200, 120)
    assert picture.getpixel((100, 60)) == (0, 0, 255)
    assert picture.getpixel((100, 10)) == (255, 0, 0)
    assert picture.getpixel((60, 60)) == (255, 255, 255)


def test_widths_of_words_are_those_of_helvetica(tmp_path: Path, open_page: Any) -> None:
    if (
        "Liberation"
        not in subprocess.run(["fc-match", "Helvetica"], capture_output=True, text=True, check=False).stdout
    ):
        pytest.skip("no font with the widths of Helvetica is installed")
    words = [chr(code) for code in range(33, 127)] + ["dual temperature (SogCLR), W = 0.1", "MMMM WWWW"]
    shapes: list[Shape] = [Text(0, 20, word, size=100) for word in words]
    (tmp_path / "a.svg").write_text(to_svg(shapes, 4000, 200, "t"))
    view, _ = open_page(tmp_path / "a.svg")
    seen = view.evaluate("Array.from(document.querySelectorAll('text'), each => each.getComputedTextLength())")
    assert seen == pytest.approx([text_width(word, 100) for word in words], abs=1, rel=0.01)
