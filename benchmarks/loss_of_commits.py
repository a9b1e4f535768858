"""Time of a step of DualTemperatureLoss at several commits, in turns in one run.

    python benchmarks/loss_of_commits.py 6608923 9d665e3 . --sizes 8 64 256

"." is the source as it lies here. Forward + backward, D = 128, float32, one thread, processor time, fresh embeddings in
each step. Each commit has several processes, since one may be placed worse in memory than another; they take turns of a
hundred steps, the best step of a process counts, and the median over a commit's processes is told.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
STEPS = 100
WORKER = """
import sys, time, torch
from dualtemp.losses import DualTemperatureLoss
torch.set_num_threads(1)
N, steps, loss = int(sys.argv[1]), int(sys.argv[2]), DualTemperatureLoss()
for _ in sys.stdin:
    best = float("inf")
    for _ in range(steps):
        q, k = (torch.randn(N, 128, requires_grad=True) for _ in range(2))
        start = time.process_time()
        loss(q, k).backward()
        best = min(best, time.process_time() - start)
    print(best, flush=True)
"""


def check_out(commit: str, into: Path) -> Path:
    """Return the folder with the package as it was at this commit."""
    if commit == ".":
        return ROOT / "src"
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    (into / commit).mkdir()
    subprocess.run(["tar", "-x", "-C", str(into / commit)], input=archive, check=True)
    return into / commit / "src"


def start(source: Path, N: int) -> "subprocess.Popen[str]":
    """Start a process that makes a round of steps for every line that it reads."""
    surroundings = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", WORKER, str(N), str(STEPS)]
    return subprocess.Popen(words, env=surroundings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def best_steps(sources: dict[str, Path], N: int, rounds: int, processes: int) -> dict[str, float]:
    """Seconds of a step by commit."""
    started = {commit: [start(source, N) for _ in range(processes)] for commit, source in sources.items()}
    best = {commit: [float("inf")] * processes for commit in sources}
    for _ in range(rounds):
        for place in range(processes):
            for commit, each in started.items():
                told, heard = each[place].stdin, each[place].stdout
                assert told is not None
                assert heard is not None
                print(file=told, flush=True)
                best[commit][place] = min(best[commit][place], float(heard.readline()))
    for process in (one for each in started.values() for one in each):
        process.communicate()
    return {commit: median(each) for commit, each in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="+", metavar="COMMIT")
    parser.add_argument("--sizes", nargs="+", type=int, default=[8, 64, 256], metavar="N")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sources = {commit: check_out(commit, Path(folder)) for commit in given.commits}
        for N in given.sizes:
            found = best_steps(sources, N, given.rounds, given.processes)
            first = found[given.commits[0]]
            for commit, seconds in found.items():
                print(f"{N:>6}  {commit:10}{seconds * 1e6:8.0f} us  {seconds / first:.2f}", flush=True)


if __name__ == "__main__":
    main()
