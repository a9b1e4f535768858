"""Build the documentation as a site, strictly: a link to nowhere is an error.

    python docs/build_site.py [--out build/site] [--epochs 20]

The first time it trains a small encoder on the built-in digits (a minute of one core), for the explorer that the
page "scalar times vector" embeds; the page is kept in build/explorer.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRAIN = "--data digits --method simco --backbone resnet_mini --batch 64 --lr 0.24 --warmup-epochs 1"
QUIETLY = "--threads 1 --no-page --quiet"


def write_explorer(page: Path, epochs: int) -> None:
    """Train on digits and write the explorer of that run, beside it."""
    dualtemp, run = [sys.executable, "-m", "dualtemp"], page.with_name("digits")
    begin = ["train", *TRAIN.split(), *QUIETLY.split(), "--epochs", str(epochs), "--out", str(run)]
    subprocess.run([*dualtemp, *(["resume", str(run)] if (run / "config.yaml").exists() else begin)], check=True)
    subprocess.run([*dualtemp, "explore", str(run), "--out", str(page)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="the site's folder")
    parser.add_argument("--explorer", type=Path, default=ROOT / "build" / "explorer" / "explore.html")
    parser.add_argument("--epochs", type=int, default=20, help="of the run that the explorer shows")
    given = parser.parse_args()
    explorer = given.explorer.resolve()
    if not explorer.exists():
        explorer.parent.mkdir(parents=True, exist_ok=True)
        write_explorer(explorer, given.epochs)
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(given.out.resolve())]
    subprocess.run(
        build, cwd=ROOT, env={**os.environ, "EXPLORER_PAGE": str(explorer), "NO_MKDOCS_2_WARNING": "1"}, check=True
    )
    print(given.out / "index.html")


if __name__ == "__main__":
    main()
