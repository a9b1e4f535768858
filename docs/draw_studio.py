"""Draw docs/studio.png: the studio on the built-in digits, in a real browser.

    python docs/draw_studio.py [--run RUN]

Trains a small encoder on the digits first (about a minute of one core), unless a run on digits is given.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PICTURE = Path(__file__).with_name("studio.png")
TRAIN = (
    "--data digits --method simco --backbone resnet_mini --batch 64 --lr 0.24 --warmup-epochs 1 --epochs 40 --no-page"
)
WIDTH, HEIGHT = 1400, 820
CHOSEN = "4"  # the class whose neighborhood is selected


def until(page: Any, condition: str) -> None:
    """Wait for something on the page, whose content policy forbids playwright's own way."""
    while not page.evaluate(f"Boolean({condition})"):
        time.sleep(0.05)


def take_picture(page: Any, address: str) -> None:
    page.set_default_timeout(600_000)
    page.goto(address)
    page.wait_for_selector("body.ready")
    until(page, "studio.store.column && studio.store.placed === '0 neighbors' && studio.map.moved >= 1")
    until(page, "studio.store.predictions.seconds !== null || studio.store.predictions.version > 0")
    # The images of one class and their nearest: where it borders on others is worth a look.
    page.evaluate(
        f"studio.store.select([...studio.store.column.values.keys()].filter(id => studio.store.column.categories"
        f"[studio.store.column.values[id]] === '{CHOSEN}').slice(0, 40), 'chosen')"
    )
    page.click("#similar")
    until(page, "studio.store.why.startsWith('like')")
    page.evaluate("document.activeElement.blur()")
    until(page, "[...document.querySelectorAll('.cell')].every(cell => cell.dataset.drawn)")
    page.wait_for_timeout(5_000)  # the note about what was done goes away
    page.screenshot(path=str(PICTURE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a run on digits; default: a new one")
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    dualtemp = [sys.executable, "-m", "dualtemp"]
    with tempfile.TemporaryDirectory() as folder:
        run = given.run or Path(folder) / "digits"
        if given.run is None:
            subprocess.run([*dualtemp, "train", *TRAIN.split(), "--out", str(run)], check=True)
        words = ["--no-browser", "--port", "0", "--labels", f"{folder}/labels.csv", "--runs", f"{folder}/runs"]
        process = subprocess.Popen([*dualtemp, "studio", str(run), *words], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            address = next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
            with sync_playwright() as driver:
                program = shutil.which("chromium") or shutil.which("google-chrome")
                browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
                view = {"viewport": {"width": WIDTH, "height": HEIGHT}, "color_scheme": "light"}
                take_picture(browser.new_page(**view), address)
                browser.close()
        finally:
            process.terminate()
            process.wait()
    print(PICTURE)


if __name__ == "__main__":
    main()
