"""Results of search and near-duplicates: pages with thumbnails, and a table of pairs."""

import csv
import io
from collections import Counter
from itertools import combinations
from pathlib import Path

from dualtemp.atomic_write import write_output
from dualtemp.encoder.near_duplicates import NearDuplicates, Pair
from dualtemp.encoder.pictures_by_name import PicturesByName, thumbnail_of_file
from dualtemp.encoder.search import Found
from dualtemp.quantities import counted
from dualtemp.report.picture_groups import Card, Section, write_search_page


def write_found_page(out: Path, run: Path, found: Found) -> None:
    """Write a page with each photograph and its nearest images."""
    facts = [("Run", str(run)), ("Searched", f"{found.among:,} images of {_source(found.pictures)}")]
    sections = []
    for photo, nearest in zip(found.photos, found.near, strict=True):
        asked = Card(thumbnail_of_file(photo, found.levels), photo.name, note="this photograph", first=True)
        shown = [Card(found.pictures.thumbnail(near.name), near.name, near.label, near.s) for near in nearest]
        sections.append(Section(f"Nearest to {photo.name}", [asked, *shown]))
    about = (
        "The images whose features, as computed by the run's encoder, have the largest cosine with the photograph's."
    )
    write_search_page(out, "Similar images", about, facts, sections)


def write_duplicates_page(out: Path, run: Path, found: NearDuplicates, threshold: float, most: int) -> None:
    """Write a page with the first `most` groups of near-duplicates."""
    count = (
        f"{counted(len(found.pairs), 'pair')} in {counted(len(found.groups), 'group')}, cosine at least {threshold:g}"
    )
    facts = [
        ("Run", str(run)),
        ("Searched", f"{found.among:,} images of {_source(found.pictures)}"),
        ("Found", count + (f"; the first {most} groups are shown" if len(found.groups) > most else "")),
    ]
    if found.recall is not None:
        facts.append(
            ("Recall", f"{100 * found.recall:.1f} % of the pairs, by the index; without one, all are compared")
        )
    if found.cut:
        facts.append(("Left out", "less similar pairs, because there are too many: give a higher --threshold"))
    pairs = {pair[:2]: pair for pair in found.pairs}
    in_groups = Counter(i for group in found.groups for i in group)
    sections = []
    for number, group in enumerate(found.groups[:most], 1):
        inside = [pairs[pair] for pair in combinations(group, 2)]
        pairs_of: dict[int, list[Pair]] = {i: [] for i in group}
        for pair in inside:
            pairs_of[pair.first].append(pair)
            pairs_of[pair.second].append(pair)
        cards = [_card(found, i, pairs_of[i], in_groups[i] > 1) for i in group]
        remarks = dict.fromkeys(word for pair in inside for word in found.remarks(pair) if word != "same content")
        least = min(pair.s for pair in inside)
        title = f"Group {number}: {len(group)} images, any two at least {least:.4f}"
        sections.append(Section("; ".join((title, *remarks)), cards))
    about = (
        "Groups of images in which any two are almost identical. Below each image is its cosine with the most similar "
        "image of its group."
    )
    write_search_page(out, "Near-duplicates", about, facts, sections)


def _card(found: NearDuplicates, i: int, pairs: list[Pair], elsewhere: bool) -> Card:
    notes = ["has an exact copy here"] if any(pair.same for pair in pairs) else []
    notes += [f"of {found.parts[i]}"] if any("and test" in word for p in pairs for word in found.remarks(p)) else []
    notes += ["in another group too"] if elsewhere else []
    name, best = found.names[i], max(pair.s for pair in pairs)
    return Card(found.pictures.thumbnail(name), name, found.labels[i], best, note="; ".join(notes))


def write_pairs(out: Path, found: NearDuplicates) -> None:
    """Write all pairs as CSV, with the number of a group that contains both, or empty if none does."""
    groups_of: dict[int, set[int]] = {}
    for number, group in enumerate(found.groups, 1):
        for i in group:
            groups_of.setdefault(i, set()).add(number)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    sides = [f"{side}_{word}" for word in ("label", "part") for side in ("first", "second")]
    writer.writerow(("first", "second", "cosine", "same_content", "group", *sides))
    words = {True: "yes", False: "no", None: ""}
    for pair in found.pairs:
        common = groups_of[pair.first] & groups_of[pair.second]
        known = [column[i] or "" for column in (found.labels, found.parts) for i in pair[:2]]
        names = (found.names[i] for i in pair[:2])
        writer.writerow((*names, f"{pair.s:.6f}", words[pair.same], min(common, default=""), *known))
    write_output(out, text.getvalue())


def _source(pictures: PicturesByName) -> str:
    return "a file of features" if pictures.images is None else pictures.images.source
