"""Growth of an index with the number of vectors, and near-duplicates by it against plain faiss and against all pairs.

    python benchmarks/index.py RUN --data cifar10 --counts 10000 100000 1000000 --work FOLDER

Vectors are features of drawn views of the images by the run's encoder, made once and kept in FOLDER; without --work
they are removed at the end. Every measurement is a process of its own: processor seconds and peak memory are those of
the work alone, beyond what importing takes.

    ours     dualtemp index, then search (held-out queries) and near-duplicates by it, with exact cosines and recall;
             above --pairs vectors, near-duplicates of 500 sampled images alone
    faiss    a plain script: IndexIVFFlat of all vectors in memory, 17 neighbors of each in 8 cells, cosine >= threshold
    exact    all pairs, tile by tile, up to --exact vectors
    imagededup   its `CNN.find_duplicates` on the same vectors, up to --exact of them, with all N x N cosines in memory;
             if it is installed: `pip install --no-deps imagededup PyWavelets`
    fiftyone     fiftyone-brain's neighbors within a radius, as its `compute_near_duplicates` asks for them, without its
             data base (MongoDB); if it is installed: `pip install fiftyone`. It subtracts the mean of all vectors first
             ("centered" is the exact comparison of these)
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dualtemp.data.loading.drawn_views import draw_views
from dualtemp.encoder.embedding_file import Columns, write_features
from dualtemp.encoder.embedding_parts import COMPUTED, SHARE, Share
from dualtemp.encoder.embedding_reader import EmbeddingFile
from dualtemp.encoder.encoder import run_encoder
from dualtemp.encoder.image_list import listed
from dualtemp.encoder.index import index
from dualtemp.encoder.index_pairs import MOST_NEIGHBORS, NEIGHBORS, ROUNDING, SAMPLE, index_pairs, neighbor_pairs
from dualtemp.encoder.index_recall import drawn_queries
from dualtemp.encoder.near_duplicates import similar_pairs
from dualtemp.encoder.vector_index import VectorIndex, import_faiss, open_index
from dualtemp.losses.similarity import unit
from dualtemp.torchvision_operators import declare_missing_operators

THRESHOLD = 0.99


def make_views(run: Path, data: str, count: int, folder: Path) -> None:
    """Features of drawn views, one part for each draw of all images; parts that are there stay."""
    encoder, images = run_encoder(run, "cpu"), listed(data)
    parts = -(-count // len(images))
    folder.mkdir(parents=True, exist_ok=True)
    shown = encoder.fitted(images.images)
    about = {"backbone": encoder.fingerprint, "source": images.source, COMPUTED: data}
    for part in range(parts):
        out = folder / Share(part, parts).file_name
        if out.exists():
            continue
        batches = torch.arange(len(images)).split(256)
        features = np.concatenate(
            [
                encoder.of_views(drawn.views[0]).numpy()
                for drawn in draw_views(shown, encoder.views, batches, [(part, 0)], encoder.device, 0)
            ]
        )
        columns = Columns([f"{part:03}/{name}" for name in images.names], None, (), None, ())
        with open(out.with_suffix(".new"), "wb") as file:
            write_features(file, ".parquet", columns, [features], encoder.width, {**about, SHARE: [part, parts]})
        out.with_suffix(".new").rename(out)
        print(f"views: {part + 1} of {parts} draws", file=sys.stderr, flush=True)


def first_rows(folder: Path, count: int, out: Path) -> None:
    """The first rows of a folder as a file of their own."""
    if out.exists():
        return
    file, names, blocks, held = EmbeddingFile(folder), [], [], 0
    for piece in file.rows():
        names += piece.names[: count - held]
        blocks.append(piece.features[: count - held])
        held += len(blocks[-1])
        if held == count:
            break
    with open(out, "wb") as opened:
        write_features(opened, ".parquet", Columns(names, None, (), None, ()), blocks, file.width, file.about)


class Meter:
    """Processor seconds since it was made, and peak memory above what was held then, in MB (Linux)."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        self.began, self.held = time.process_time(), self._memory("VmRSS")

    @staticmethod
    def _memory(word: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(word)) / 1024

    def read(self) -> dict[str, float]:
        """The figures."""
        return {"seconds": time.process_time() - self.began, "megabytes": self._memory("VmHWM") - self.held}


def measure(what: str, features: Path, kind: str | None) -> dict[str, Any]:
    """One measurement, in this process."""
    import_faiss().omp_set_num_threads(1)
    torch.set_num_threads(1)
    out = features.with_suffix(".index")
    meter = Meter()
    if what == "build":
        made = index(features, out=out, kind=kind)
        per = made.header.files["index"]["bytes"] / made.header.count
        told = {"kind": made.header.kind, "bytes": per, **made.header.settings, **made.header.recall}
        return {**meter.read(), **told}
    if what == "search":
        opened, _, _ = open_index(out)
        _, rows = drawn_queries(len(opened), seed=1)
        queries = opened.vectors.unit(rows)
        meter = Meter()
        for row in range(len(queries)):  # one photograph after another
            opened.search(queries[row : row + 1], 10)
        return {**meter.read(), "queries": len(queries)}
    if what == "sampled":
        opened, _, _ = open_index(out)
        meter = Meter()
        return _sampled(opened, meter)
    if what == "duplicates":
        opened, _, _ = open_index(out)
        meter = Meter()
        found = index_pairs(opened, THRESHOLD)
        return {**meter.read(), "pairs": len(found.pairs), "recall": found.recall}
    x = np.concatenate([piece.features for piece in EmbeddingFile(features).rows()])
    meter = Meter()
    if what == "exact":
        pairs, _, _ = similar_pairs(torch.from_numpy(x), THRESHOLD)
        return {**meter.read(), "pairs": len(pairs)}
    if what == "centered":
        pairs, _, _ = similar_pairs(torch.from_numpy(x - x.mean(0)), THRESHOLD)
        return {**meter.read(), "pairs": len(pairs)}
    if what == "imagededup":
        return _imagededup(x)
    if what == "fiftyone":
        return _fiftyone(x)
    return {**_plain_faiss(x), **meter.read()}


def _imagededup(x: np.ndarray) -> dict[str, Any]:
    """The pairs that imagededup finds among vectors; its network is never asked."""
    declare_missing_operators()
    from imagededup.methods import CNN  # pyright: ignore[reportMissingImports]
    from imagededup.utils import CustomModel  # pyright: ignore[reportMissingImports]

    vectors = {str(i): row for i, row in enumerate(x)}
    model = CustomModel(name="none", model=torch.nn.Identity(), transform=lambda image: image)
    finder, meter = CNN(verbose=False, model_config=model), Meter()
    found = finder.find_duplicates(encoding_map=vectors, min_similarity_threshold=THRESHOLD, num_sim_workers=0)
    pairs = {(min(i, j), max(i, j)) for i, others in found.items() for j in others}
    return {**meter.read(), "pairs": len(pairs)}


def _fiftyone(x: np.ndarray) -> dict[str, Any]:
    """The pairs that fiftyone-brain's sklearn index finds; no data set, which would need its data base."""
    from fiftyone.brain.internal.core import sklearn as brain  # pyright: ignore[reportMissingImports]

    class Index(brain.SklearnSimilarityIndex):
        def __init__(self) -> None:
            self.helper = brain.NeighborsHelper(x, "cosine")

        def _get_neighbors(self, **how: bool) -> Any:
            return self.helper.get_neighbors(keep_inds=None, **how)

    meter = Meter()
    found = Index()._radius_neighbors(thresh=1 - THRESHOLD)
    pairs = {(min(i, j), max(i, j)) for i, others in enumerate(found) for j in others.tolist() if i != j}
    return {**meter.read(), "pairs": len(pairs)}


def _sampled(opened: VectorIndex, meter: Meter) -> dict[str, Any]:
    """Pairs of 500 images by their own neighbors: milliseconds an image, and their share of all pairs of these."""
    count, found = len(opened), set[int]()
    asked = np.sort(np.random.default_rng(0).permutation(count)[:SAMPLE])
    waiting, k = asked, max(NEIGHBORS, opened.settings["candidates"])
    while len(waiting):
        keys, _, more = neighbor_pairs(opened, waiting, k, THRESHOLD - ROUNDING)
        found |= set(keys.tolist())
        waiting, k = more if k < min(MOST_NEIGHBORS, count) else waiting[:0], 4 * k
    taken, true, queries = meter.read(), set[int](), opened.vectors.unit(asked)
    for start, z in opened.vectors.pieces():
        at, other = np.nonzero(queries @ z.T >= THRESHOLD)
        one, other = asked[at], other + start
        keys = np.minimum(one, other) * count + np.maximum(one, other)
        true |= set(keys[one != other].tolist())
    told = {"milliseconds": 1000 * taken["seconds"] / len(asked), "pairs": len(true)}
    return {**told, "recall": len(found & true) / max(1, len(true))}


def _plain_faiss(x: np.ndarray) -> dict[str, Any]:
    faiss = import_faiss()
    z = unit(torch.from_numpy(x))[0].numpy()
    cells = max(1, round(2 * len(z) ** 0.5))
    quantizer = faiss.IndexFlatIP(z.shape[1])
    found = faiss.IndexIVFFlat(quantizer, z.shape[1], cells, faiss.METRIC_INNER_PRODUCT)
    found.train(z)
    found.add(z)
    found.nprobe = 8
    s, rows = found.search(z, 17)
    at, place = np.nonzero((s >= THRESHOLD) & (rows != np.arange(len(z))[:, None]) & (rows >= 0))
    one, other = at, rows[at, place]
    return {"pairs": len(np.unique(np.minimum(one, other) * len(z) + np.maximum(one, other)))}


def measured(
    counts: list[int], work: Path, exact: int, pairs: int, kind: str | None
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    for count in counts:
        features = work / f"{count}.parquet"
        first_rows(work / "views", count, features)
        peers = {"imagededup": ["imagededup"], "fiftyone": ["fiftyone", "centered"]}
        all_pairs = ["exact", *(what for name, more in peers.items() if find_spec(name) for what in more)]
        more = [*(["duplicates"] if count <= pairs else []), "faiss", *(all_pairs if count <= exact else [])]
        for what in ("build", "search", "sampled", *more):
            words = [
                sys.executable,
                __file__,
                "--one",
                what,
                str(features),
                *([] if kind is None else ["--kind", kind]),
            ]
            ended = subprocess.run(words, capture_output=True, text=True, check=False)
            if ended.returncode:
                raise SystemExit(ended.stderr)
            yield count, what, json.loads(ended.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--counts", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--exact", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=100_000, help="most vectors whose near-duplicates are all sought")
    parser.add_argument("--kind", choices=("exact", "hnsw", "ivfpq"))
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="where vectors and indexes stay")
    parser.add_argument("--one", nargs=2, metavar=("WHAT", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one[0], Path(arguments.one[1]), arguments.kind)))
        return
    if arguments.run is None:
        parser.error("give a run")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        work = arguments.work or Path(place)
        make_views(arguments.run, arguments.data, max(arguments.counts), work / "views")
        for count, what, told in measured(arguments.counts, work, arguments.exact, arguments.pairs, arguments.kind):
            figures = ", ".join(
                f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in told.items()
            )
            print(f"{count:>9,} {what:<10} {figures}", flush=True)


if __name__ == "__main__":
    main()
