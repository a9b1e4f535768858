"""What search and near-duplicates found, as pages with thumbnails and as a table of pairs."""

import csv
import io
from pathlib import Path

from dualtemp.inference.near_duplicates import NearDuplicates
from dualtemp.inference.pictures_by_name import PicturesByName, thumbnail_of_file
from dualtemp.inference.search import Found
from dualtemp.report.search_page import Card, Section, write_search_page
from dualtemp.training.display import counted
from dualtemp.whole_file import write_output


def write_found_page(out: Path, run: Path, found: Found) -> None:
    """Write a page of photographs and what was found near them."""
    facts = [("Run", str(run)), ("Looked among", f"{found.among:,} images of {_source(found.pictures)}")]
    sections = []
    for photo, nearest in zip(found.photos, found.near, strict=True):
        asked = Card(thumbnail_of_file(photo), photo.name, note="this photograph", first=True)
        shown = [Card(found.pictures.thumbnail(near.name), near.name, near.label, near.s) for near in nearest]
        sections.append(Section(f"Nearest to {photo.name}", [asked, *shown]))
    about = "The images whose features have the largest cosine with the photograph's, as the run's encoder sees them."
    write_search_page(out, "What looks alike", about, facts, sections)


def write_duplicates_page(out: Path, run: Path, found: NearDuplicates, threshold: float, most: int) -> None:
    """Write a page of groups of near-duplicates, the first `most` of them."""
    count = (
        f"{counted(len(found.pairs), 'pair')} in {counted(len(found.groups), 'group')}, cosine at least {threshold:g}"
    )
    facts = [
        ("Run", str(run)),
        ("Looked among", f"{len(found.names):,} images of {_source(found.pictures)}"),
        ("Found", count + (f"; the first {most} groups are shown" if len(found.groups) > most else "")),
    ]
    if found.cut:
        facts.append(("Left out", "less similar pairs: there are too many, give a higher --threshold"))
    best: dict[int, float] = {}
    same: set[int] = set()
    for pair in found.pairs:
        for i in (pair.first, pair.second):
            best[i] = max(best.get(i, -1.0), pair.s)
            same |= {i} if pair.same else set()
    sections = []
    for number, group in enumerate(found.groups[:most], 1):
        cards = [
            Card(
                found.pictures.thumbnail(found.names[i]),
                found.names[i],
                found.labels[i],
                best[i],
                note="has an exact copy here" if i in same else "",
            )
            for i in group
        ]
        sections.append(Section(f"Group {number}: {len(group)} images", cards))
    about = "Images that are almost equal, and the cosine with the one that each is most similar to."
    write_search_page(out, "Near-duplicates", about, facts, sections)


def write_pairs(out: Path, found: NearDuplicates) -> None:
    """Write all pairs as CSV: both names, cosine, whether their content is the same, and the number of their group."""
    group_of = {i: number for number, group in enumerate(found.groups, 1) for i in group}
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("first", "second", "cosine", "same_content", "group"))
    words = {True: "yes", False: "no", None: ""}
    for pair in found.pairs:
        names = found.names[pair.first], found.names[pair.second]
        writer.writerow((*names, f"{pair.s:.6f}", words[pair.same], group_of[pair.first]))
    write_output(out, text.getvalue())


def _source(pictures: PicturesByName) -> str:
    return "a file of features" if pictures.images is None else pictures.images.source
