"""A pretrained start, frozen and adapted: does training on one's own images pay?

    python -m benchmarks.starts --photos FOLDER --xray FOLDER --cifar100 FOLDER --out docs/results/starts

Every image is tested once: a set is cut into two halves, balanced over its classes, an encoder is adapted without
labels on one half and tested on the other, whose neighbors and classifiers come from the first half, and the other way
around. The frozen start answers the same images, and the two are compared image by image.

What stays frozen gives the same activations in every run, so they are computed once for a few views of each image
(onnxruntime, one thread) and kept in --cache; steps, loss, rates and schedule are those of `dualtemp train`. Runs that
have a result in --out are not repeated.
"""

import argparse
import copy
import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import dualtemp
from dualtemp.config import Settings, complete, settings
from dualtemp.data import open_source
from dualtemp.data.augment.views import Views
from dualtemp.data.images import ImageSet
from dualtemp.data.loading.loader import Batch, Loader, evaluation_batches
from dualtemp.data.training_data import TrainingData
from dualtemp.encoder.encoder import run_encoder
from dualtemp.evaluation.features import image_features
from dualtemp.evaluation.few_shot import few_shot_scores
from dualtemp.evaluation.frozen_measures import few_label_draws
from dualtemp.evaluation.knn import best_k, knn_votes
from dualtemp.evaluation.probe import probe_scores
from dualtemp.frameworks.build import FrameworkModule
from dualtemp.frameworks.network import Network
from dualtemp.frameworks.protocol import Context
from dualtemp.models.backbones import build_backbone
from dualtemp.models.stages import Rest, split_backbone
from dualtemp.models.starts import Start, open_start
from dualtemp.training.run_data import with_channels
from dualtemp.training.schedule import lr_factor
from dualtemp.training.train_step import TrainStep

KEPT = 7  # stages whose activations are kept, all but the last: stem and six of seven blocks
PIECE = 8  # images at once, which is faster than more: activations stay in the processor's cache
SIZES = {"photos": 160, "xray": 128, "cifar100": 96}  # px of a view
EPOCH_VIEWS = {"photos": 3, "xray": 2, "cifar100": 2}  # pairs of views of each image; more epochs take them anew
SCRATCH_SIZES = {"photos": 64, "xray": 64, "cifar100": 32}  # px of a view of a network that starts from nothing
CIFAR_IMAGES = 2_000
RECIPE: dict[str, Any] = {"freeze_batch_norm": True, "layer_decay": 0.03, "batch": 64, "lr": 0.24}
ARMS: dict[str, dict[str, Any]] = {
    "adapted, two temperatures": {"tau_beta": 1.0},
    "adapted, one temperature": {"tau_beta": "tied"},
    "adapted, two temperatures, anchor": {"tau_beta": 1.0, "anchor": 20.0},
}


class Activations(NamedTuple):
    """Of N images after the frozen stages: clean (N, ...), views (N, V, ...), both float16; labels (N,); test (N,):
    whether an image is of the set's test part.
    """

    clean: Tensor
    views: Tensor
    labels: Tensor
    test: Tensor


class LastStage(Rest):
    """What learns with `--freeze -1`: the seventh block and the convolution after it."""

    num_features = 1280

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        """All of it is one stage."""
        return {"stem": r"^pieces"}


def last_stage(start: Start) -> tuple[nn.Module, LastStage]:
    """The start's backbone up to its last stage, and that."""
    backbone = build_backbone(start.network or "", 224, 3, seed=0)
    start.load_into(backbone)
    found = split_backbone(backbone, KEPT, torch.zeros(1, 3, 64, 64))
    assert found is not None
    rest = LastStage(list(found[1].pieces))
    trunk = nn.Sequential(backbone.conv_stem, backbone.bn1, *list(backbone.blocks)[: KEPT - 1])  # pyright: ignore
    return trunk.eval(), rest.eval()


def compute_activations(trunk: nn.Module, parts: list[ImageSet], start: Start, size: int, epochs: int) -> Activations:
    """Activations of the clean images and of the views of some epochs."""
    given = start.input
    assert given is not None
    views = Views("paper", size, 0, given.mean, given.std, given.interpolation, given.crop)
    encode = compiled(trunk, size)
    clean, labels, drawn, test = [], [], [], []
    for place, images in enumerate(parts):
        for batch in evaluation_batches(images, views, 64, workers=0):
            clean.append(encode(batch.pixels).half())
            labels.append(batch.labels)
        some = math.gcd(len(images), 20)  # an epoch drops what does not fill a batch
        made: Tensor | None = None
        with Loader(images, views, some, workers=0) as loader:
            for epoch in range(epochs):
                for batch in loader.batches(epoch):
                    for number, view in enumerate(batch.views):
                        found = encode(view).half()
                        if made is None:
                            made = torch.empty(len(images), 2 * epochs, *found.shape[1:], dtype=torch.half)
                        made[batch.index, 2 * epoch + number] = found
        assert made is not None
        drawn.append(made)
        test += [place == 1] * len(images)
    return Activations(torch.cat(clean), torch.cat(drawn), torch.cat(labels), torch.tensor(test))


def compiled(trunk: nn.Module, size: int) -> Callable[[Tensor], Tensor]:
    """The trunk in onnxruntime, one thread: two to four times as fast as torch in eval mode."""
    import io

    import onnxruntime

    program = torch.onnx.export(
        trunk,
        (torch.zeros(2, 3, size, size),),
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("n", min=1, max=512)},),
        verbose=False,
    )
    assert program is not None
    file = io.BytesIO()
    program.save(file)  # pyright: ignore
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def encode(images: Tensor) -> Tensor:
        pieces = images.contiguous().split(PIECE)
        return torch.cat([torch.from_numpy(session.run(None, {name: piece.numpy()})[0]) for piece in pieces])  # pyright: ignore

    return encode


def halves(labels: Tensor) -> Tensor:
    """0 or 1 for each image: every second image of a class."""
    found = torch.zeros(len(labels), dtype=torch.int64)
    for label in labels.unique():
        places = (labels == label).nonzero()[:, 0]
        found[places[1::2]] = 1
    return found


def adapt(rest: LastStage, known: Activations, index: Tensor, chosen: Settings) -> LastStage:
    """Adapt the last stage on the images of `index`, as `dualtemp train` does."""
    rest = copy.deepcopy(rest)
    context = Context(chosen.seed, chosen.batch, 0, chosen.framework.version, len(index), chosen.epochs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(chosen.seed + 1)
        heads = chosen.framework.heads(chosen.options, rest.num_features, context)
    method = FrameworkModule(chosen.framework(chosen.options, Network(rest, *heads), context))
    channels, side = known.clean.shape[1:3]
    empty = ImageSet("activations", torch.empty(len(index), channels, 1, 1, dtype=torch.uint8), channels=channels)
    data = TrainingData(empty, None, None, Views("paper", side, 0, (0.5,) * channels, (1.0,) * channels), 0)
    step = TrainStep(chosen, method, data, torch.device("cpu"))
    steps, pairs, done = len(index) // chosen.batch, known.views.shape[1] // 2, 0
    warmup = round((chosen.warmup_epochs or 0) * steps)
    draw = torch.Generator().manual_seed(chosen.seed)
    for epoch in range(chosen.epochs):
        order = index[torch.randperm(len(index), generator=draw)]
        for some in order[: steps * chosen.batch].split(chosen.batch):
            views = tuple(known.views[some, 2 * (epoch % pairs) + view].float() for view in range(2))
            factor = lr_factor(done, chosen.epochs * steps, warmup)
            step(Batch(some, None, views, torch.arange(len(some))), done, factor)
            done += 1
    return rest


def scratch_features(parts: list[ImageSet], index: Tensor, name: str, seed: int, epochs: int, folder: Path) -> Tensor:
    """Features of all images by a `resnet_mini` that `dualtemp train` has taught from nothing on those of `index`."""
    views = Views("paper", SCRATCH_SIZES[name], 0, (0.0,) * 3, (1.0,) * 3)
    pixels = torch.cat([batch.pixels for part in parts for batch in evaluation_batches(part, views, 64, workers=0)])
    pixels = (255 * pixels).round().to(torch.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "train.npz", images=pixels[index].permute(0, 2, 3, 1).numpy())
    chosen: dict[str, Any] = {"backbone": "resnet_mini", "image_size": SCRATCH_SIZES[name], "batch": 64, "lr": 0.24}
    chosen |= {"init": "none", "epochs": epochs, "evaluate_every": epochs, "seed": seed, "device": "cpu"}
    dualtemp.train(data=str(folder), out=folder / "run", threads=1, quiet=True, page=False, **chosen)
    encoder = run_encoder(folder / "run", "cpu")
    return torch.cat([encoder.of_views(encoder.views.evaluation(part)) for part in pixels.split(256)])


def measure(features: Tensor, labels: Tensor, bank: Tensor, test: Tensor) -> dict[str, Tensor]:
    """Which test images are classified right, by measure: (M,), or (draws, M) for few labels."""
    classes, found = 1 + int(labels.max()), {}
    given = (features[bank], labels[bank], features[test], labels[test])
    votes = knn_votes(*given[:3], classes, k=best_k(*given[:2]))
    found["kNN"] = (votes.argmax(1) == given[3])[None]
    found["linear probe"] = (probe_scores(*given, seed=0)[0].argmax(1) == given[3])[None]
    for title, share in few_label_draws(given[1]):
        found[title] = torch.stack([scores.argmax(1) == given[3] for scores in few_shot_scores(*given, share)])
    return found


def cross_fitted(features: list[Tensor], labels: Tensor, side: Tensor) -> dict[str, Tensor]:
    """The same for all images in their order; features[h] are those of the encoder adapted on half h."""
    whole: dict[str, Tensor] = {}
    for half in (0, 1):
        bank, test = (side == half).nonzero()[:, 0], (side != half).nonzero()[:, 0]
        for name, right in measure(features[half], labels, bank, test).items():
            made = whole.setdefault(name, torch.zeros(len(right), len(labels), dtype=torch.bool))
            made[:, test] = right
    return whole


def summary(right: dict[str, Tensor], start: dict[str, Tensor], test: Tensor) -> dict[str, Any]:
    """Accuracies in %, and image by image against the start: gained, lost, and the gain's standard error in points."""
    found = {}
    for name, mine in right.items():
        theirs = start[name]
        gain = (mine.double() - theirs.double()).mean(0)  # per image, over the draws
        found[name] = {
            "top1": round(100 * float(mine.double().mean()), 3),
            "start": round(100 * float(theirs.double().mean()), 3),
            "gain": round(100 * float(gain.mean()), 3),
            "error": round(100 * float(gain.std()) / math.sqrt(len(gain)), 3),
            "gained": int((mine & ~theirs)[0].sum()),
            "lost": int((theirs & ~mine)[0].sum()),
        }
        if test.any():
            found[name]["test_part"] = {
                "top1": round(100 * float(mine[:, test].double().mean()), 3),
                "start": round(100 * float(theirs[:, test].double().mean()), 3),
            }
    return found


def open_parts(name: str, path: Path) -> list[ImageSet]:
    """The parts of a set in three channels; of CIFAR-100 a balanced subset of the training part."""
    if name == "cifar100":
        with np.load(path / "train.npz", allow_pickle=False) as file:
            pixels, labels = torch.from_numpy(file["images"]), torch.from_numpy(file["labels"])
        whole = ImageSet(name, pixels.permute(0, 3, 1, 2).contiguous(), labels.long(), tuple(map(str, range(100))))
        return [whole.subset(CIFAR_IMAGES, 0)]
    splits = with_channels(open_source(path), 3)
    return [splits.train] + ([splits.test] if splits.test is not None else [])


def main() -> None:
    """Measure what is missing in --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in SIZES:
        parser.add_argument(f"--{name}", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("/tmp/dualtemp-starts"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--scratch-seeds", type=int, default=1, help="seeds of runs from nothing")
    parser.add_argument("--scratch-epochs", type=int, default=40)
    given = vars(parser.parse_args())
    torch.set_num_threads(1)
    start = open_start("imagenet")
    trunk, rest = last_stage(start)
    given["out"].mkdir(parents=True, exist_ok=True)
    given["cache"].mkdir(parents=True, exist_ok=True)
    for name in (name for name in SIZES if given[name] is not None):
        known = kept_activations(given["cache"] / f"{name}.pt", trunk, name, given[name], start)
        side = halves(known.labels)
        frozen = image_features(rest, (part.float() for part in known.clean.split(64)))
        answers = cross_fitted([frozen, frozen], known.labels, side)
        about = {"set": name, "images": len(known.labels), "size": SIZES[name], "start": start.content}
        write(given["out"] / f"{name}-frozen.json", {**about, "measured": summary(answers, answers, known.test)})
        for seed in range(given["scratch_seeds"]):
            path = given["out"] / f"{name}-from-scratch-s{seed}.json"
            if path.exists():
                continue
            began, parts, features = time.process_time(), open_parts(name, given[name]), []
            with tempfile.TemporaryDirectory() as folder:
                for half in (0, 1):
                    index = (side == half).nonzero()[:, 0]
                    where = Path(folder) / str(half)
                    features.append(scratch_features(parts, index, name, seed, given["scratch_epochs"], where))
            found = {**about, "arm": "from scratch", "seed": seed, "size": SCRATCH_SIZES[name]}
            found |= {"recipe": {"backbone": "resnet_mini", "batch": 64, "lr": 0.24, "epochs": given["scratch_epochs"]}}
            found["seconds"] = round(time.process_time() - began, 1)
            measured = summary(cross_fitted(features, known.labels, side), answers, known.test)
            write(path, {**found, "measured": measured})
            print(name, "from scratch", seed, {key: value["top1"] for key, value in measured.items()}, flush=True)
        for seed in range(given["seeds"]):
            for arm, options in ARMS.items():
                path = (
                    given["out"]
                    / f"{name}-{arm.removeprefix('adapted, ').replace(', ', '-').replace(' ', '-')}-s{seed}.json"
                )
                if path.exists():
                    continue
                values = {"data": name, "backbone": "tf_efficientnet_lite0", "init": "imagenet", "seed": seed}
                chosen = complete(settings({**values, **RECIPE, **options, "epochs": given["epochs"]}), SIZES[name])
                began = time.process_time()
                features = []
                for half in (0, 1):
                    made = adapt(rest, known, (side == half).nonzero()[:, 0], chosen)
                    features.append(image_features(made, (part.float() for part in known.clean.split(64))))
                right = cross_fitted(features, known.labels, side)
                found = {**about, "arm": arm, "seed": seed, "recipe": {**RECIPE, **options, "epochs": chosen.epochs}}
                found["seconds"] = round(time.process_time() - began, 1)
                write(path, {**found, "measured": summary(right, answers, known.test)})
                shown = {
                    key: (value["top1"], value["gain"]) for key, value in summary(right, answers, known.test).items()
                }
                print(name, arm, seed, shown, found["seconds"], flush=True)
    print(table(given["out"]))


def table(out: Path) -> str:
    """The results of a folder as Markdown: accuracy in %, and gain over the frozen start, means over the seeds."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for path in sorted(out.glob("*.json")):
        result = json.loads(path.read_text())
        found.setdefault((result["set"], result.get("arm", "start, frozen")), []).append(result)
    lines = []
    order = ["start, frozen", *ARMS, "from scratch"]
    for name in SIZES:
        arms = [arm for arm in order if (name, arm) in found]
        if not arms:
            continue
        measures = list(found[name, arms[0]][0]["measured"])
        lines += ["", f"| {name} | seeds | {' | '.join(measures)} |", "|---" * (len(measures) + 2) + "|"]
        for arm in arms:
            results, cells = found[name, arm], []
            for each in measures:
                mine = [result["measured"][each] for result in results]
                top1, gain = (sum(one[key] for one in mine) / len(mine) for key in ("top1", "gain"))
                # The images are the same for all seeds: more seeds do not make their part of the error smaller.
                error = sum(one["error"] for one in mine) / len(mine)
                cells.append(f"{top1:.1f}" + ("" if arm == order[0] else f" ({gain:+.1f} ± {error:.1f})"))
            lines.append(f"| {arm} | {len(results) if arm != order[0] else ''} | {' | '.join(cells)} |")
    return "\n".join(lines)


def kept_activations(file: Path, trunk: nn.Module, name: str, path: Path, start: Start) -> Activations:
    """Activations of a set, computed once."""
    if not file.exists():
        made = compute_activations(trunk, open_parts(name, path), start, SIZES[name], EPOCH_VIEWS[name])
        torch.save(made._asdict(), file)
    return Activations(**torch.load(file))


def write(path: Path, content: dict[str, Any]) -> None:
    """Write a result."""
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
