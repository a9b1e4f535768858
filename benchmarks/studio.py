"""The studio in a real browser: time to the first picture, and how long a frame of many points takes.

    python benchmarks/studio.py                           10,000 images; maps of 100,000 and 1,000,000 points
    python benchmarks/studio.py --images 0 --points 100000
    python benchmarks/studio.py --images 0 --points       the probe alone: the first refit of a process, and later ones

Chromium draws without a GPU here (software rendering), as on a plain server: a graphics card is far faster. Features
are made up, in 50 groups of 64 numbers; the images are drawn, 96 px, as JPEG files. Figures are the best of several.
Seconds depend on what else the computer does; processor time (Linux), of the studio and of the browser's processes
together, hardly does.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dualtemp.encoder.embedding_file import Columns, write_features

GROUPS, WIDTH = 50, 64
PATIENCE = 600_000  # ms
# Processor time of a process's first refit, of one with 24 labels, and of one with as many as are used at most; by the
# studio's own fit, and by the probe of `evaluation`, which needs torch.
REFITS = """
import sys, time
import numpy as np
draw = np.random.default_rng(0)
y = np.arange(3000) % 50
x = (draw.normal(size=(50, 1280))[y] + 1.5 * draw.normal(size=(3000, 1280))).astype(np.float32)
def seconds(labels, classes):
    began = time.process_time()
    if sys.argv[1] == "studio":
        from dualtemp.studio.softmax_regression import softmax_regression
        softmax_regression(x[:labels], y[:labels] % classes, classes, 0.01)
    else:
        import torch
        from dualtemp.evaluation.probe import logistic_regression
        logistic_regression(torch.from_numpy(x[:labels]), torch.from_numpy(y[:labels] % classes), classes, 0.01)
    return time.process_time() - began
print(seconds(2, 2), min(seconds(24, 3) for _ in range(5)), min(seconds(3000, 50) for _ in range(3)))
"""


def made_features(count: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    centers = draw.normal(size=(GROUPS, WIDTH)).astype(np.float32)
    groups = draw.integers(0, GROUPS, count)
    return centers[groups] + 0.6 * draw.normal(size=(count, WIDTH)).astype(np.float32), groups


def write_embeddings(path: Path, names: list[str], source: Path | None) -> None:
    features, groups = made_features(len(names))
    columns = Columns(names, None, (), groups.astype(np.int64), tuple(f"group {n}" for n in range(GROUPS)))
    with open(path, "wb") as file:
        about = {} if source is None else {"source": str(source)}
        write_features(file, ".npz", columns, [features], WIDTH, about)


def draw_images(folder: Path, count: int) -> list[str]:
    folder.mkdir()
    names = [f"{number:07}.jpg" for number in range(count)]
    for number, name in enumerate(names):
        coarse = np.random.default_rng(number).integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((96, 96), Image.Resampling.BICUBIC).save(folder / name, quality=80)
    return names


@contextlib.contextmanager
def studio(embeddings: Path) -> Any:
    """Start the studio as a process; yields its address, the seconds until it was printed, and its number."""
    words = [sys.executable, "-m", "dualtemp", "studio", str(embeddings), "--no-browser", "--port", "0"]
    words += ["--labels", str(embeddings.with_suffix(".labels.csv")), "--runs", str(embeddings.parent / "runs")]
    began = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = ""
        while not (found := re.search(r"http://\S+", address)):
            address = process.stdout.readline()
            if not address:
                raise SystemExit("the studio has ended")
        yield found[0], time.perf_counter() - began, process.pid
    finally:
        process.terminate()
        process.wait()


def first_picture(browser: Any, embeddings: Path) -> dict[str, float]:
    """Seconds from starting the command, and from opening the page once the images are open."""
    with studio(embeddings) as (address, printed, process):
        cold = _until_picture(browser, address, process)
        while _state(browser, address):  # until the map is made, which other processors would do meanwhile
            time.sleep(0.2)
        again = [_until_picture(browser, address, process) for _ in range(5)]
        best = {name: min(each[name] for each in again) for name in cold}
        return {"address": printed, "cold": cold["seconds"] + printed, **{f"cold {k}": cold[k] for k in CPU}, **best}


CPU = ("studio's", "browser's")


def _until_picture(browser: Any, address: str, process: int) -> dict[str, float]:
    """Seconds until the page shows its first picture, and the processor time of both sides in it."""
    page = browser.new_page(viewport={"width": 1400, "height": 850})
    page.set_default_timeout(PATIENCE)
    mine, others = processor_seconds([process]), processor_seconds(descendants(os.getpid(), process))
    began = time.perf_counter()
    page.goto(address)
    _until(page, "document.querySelector('.cell')?.dataset.drawn === '1'")
    took = time.perf_counter() - began
    mine = processor_seconds([process]) - mine
    others = processor_seconds(descendants(os.getpid(), process)) - others
    page.close()
    return {"seconds": took, CPU[0]: mine, CPU[1]: others}


def _state(browser: Any, address: str) -> bool:
    """Whether the studio is still at work."""
    page = browser.new_page()
    page.goto(address)
    jobs = page.evaluate("fetch('/api/state').then(answer => answer.json()).then(state => state.jobs)")
    page.close()
    return any(job["state"] in ("waiting", "running") for job in jobs)


def descendants(process: int, without: int) -> list[int]:
    """The processes that a process has started, and theirs; without one of them."""
    parents: dict[int, int] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(each.parent.name)] = int(each.read_text().rpartition(")")[2].split()[1])
    found = {process}
    while more := {each for each, parent in parents.items() if parent in found and each not in found | {without}}:
        found |= more
    return sorted(found - {process})


def processor_seconds(processes: list[int]) -> float:
    """Processor time that processes have used so far."""
    ticks = 0
    for process in processes:
        with contextlib.suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _until(page: Any, condition: str) -> None:
    """Wait; playwright's own way evaluates text within the page, which its content policy forbids."""
    while not page.evaluate(f"Boolean({condition})"):
        time.sleep(0.005)


def frames(browser: Any, embeddings: Path) -> dict[str, float]:
    """Milliseconds of a frame with all points, and between frames while the map is moved."""
    with studio(embeddings) as (address, _, _):
        page = browser.new_page(viewport={"width": 1400, "height": 850})
        page.set_default_timeout(PATIENCE)
        began = time.perf_counter()
        page.goto(address)
        page.wait_for_selector("body.ready")
        opened = time.perf_counter() - began
        _until(page, "studio.store.column !== null")
        whole = page.evaluate("Array.from({length: 7}, () => studio.map.measureFrame())")
        page.evaluate(
            "new Promise(done => { studio.map.frames = []; let n = 0; const step = () => {"
            "studio.map.pan(n % 2 ? 6 : -6, 2); if (++n < 90) requestAnimationFrame(step); else done(); }; step(); })"
        )
        moving = sorted(page.evaluate("studio.map.frames.slice(-40)"))
        found = {"open": opened, "all": min(whole), "moving": moving[len(moving) // 2]}
        return {**found, "drawn": page.evaluate("Math.round(studio.map.drawnWhileMoving)")}


def refits(whose: str) -> list[float]:
    """Seconds of REFITS in a process of its own."""
    words = [sys.executable, "-c", REFITS, whose]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [float(word) for word in said.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000, help="for the first picture; 0 leaves it out")
    parser.add_argument("--points", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    results: dict[str, Any] = {name: refits(name) for name in ("studio", "torch")}
    for name in ("studio", "torch"):
        first, few, many = results[name]
        print(f"refit, {name}: first {first:.3f} s, 24 labels {few:.4f} s, 3,000 labels {many:.2f} s of processor time")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        root = Path(folder)
        if given.images:
            names = draw_images(root / "images", given.images)
            write_embeddings(root / "images.npz", names, root / "images")
            found = results["first picture"] = first_picture(browser, root / "images.npz")
            print(
                f"{given.images:,} images: the address is printed after {found['address']:.2f} s, the first picture of "
                f"a cold start is there after {found['cold']:.2f} s; the page opened again shows it in "
                f"{found['seconds']:.2f} s, of processor time {found[CPU[0]]:.2f} s in the studio and "
                f"{found[CPU[1]]:.2f} s in the browser (cold {found[f'cold {CPU[0]}']:.2f} s and "
                f"{found[f'cold {CPU[1]}']:.2f} s)"
            )
        for count in given.points:
            path = root / f"{count}.npz"
            write_embeddings(path, [f"{number:07}" for number in range(count)], None)
            found = results[f"{count} points"] = frames(browser, path)
            print(
                f"{count:,} points: open after {found['open']:.1f} s; a frame of all points {found['all']:.0f} ms; "
                f"while it moves {found['moving']:.0f} ms between frames, {found['drawn']:,} points drawn"
            )
        browser.close()
    if given.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
