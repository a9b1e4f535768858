"""Start a run on the chosen images, and show the images as a run's encoder sees them."""

from pathlib import Path

import numpy as np

from dualtemp.errors import UserError
from dualtemp.frameworks import frameworks
from dualtemp.studio.background import Progress
from dualtemp.studio.class_folders import write_class_folders, write_pixels
from dualtemp.studio.collection import Collection
from dualtemp.studio.opening import embedded, encoder_title
from dualtemp.studio.requests import Learn
from dualtemp.studio.space import make_space
from dualtemp.studio.training_runs import TrainingRuns
from dualtemp.studio.workspace import Workspace

FEWEST = 16  # fewest images for a run


def start_learning(workspace: Workspace, runs: TrainingRuns, wanted: Learn, numbers: list[int] | None) -> str:
    """Start a run on these images, or on all if None; returns its name."""
    images = workspace.shown.images
    if wanted.method not in frameworks():
        raise UserError(f"no method is called {wanted.method!r}: choose among {', '.join(frameworks())}")
    if images.images is None:
        raise UserError("it is not known where the images are: start the studio with --data")
    if len(images if numbers is None else set(numbers)) < FEWEST:
        raise UserError(f"a run needs at least {FEWEST} images to learn from: select more")
    name = runs.new_name(f"{images.title}-{wanted.method}")
    data = images.source if numbers is None else _chosen(workspace, runs, sorted(set(numbers)), name)
    settings = wanted.model_dump(exclude={"ids", "init"}, exclude_none=True)
    if wanted.init != "auto":
        settings["init"] = wanted.init
    runs.train(name, data, settings)
    return name


def _chosen(workspace: Workspace, runs: TrainingRuns, numbers: list[int], name: str) -> str:
    """Write the chosen images for training, as a folder of links or an .npz file of pixels; returns its path."""
    images, words = workspace.shown.images, workspace.words()
    all_labeled = all(words[i] is not None for i in numbers)
    labels = {i: words[i] if all_labeled else None for i in numbers}
    assert images.images is not None
    if missing := int((images.numbers[numbers] < 0).sum()):
        raise UserError(
            f"{missing:,} of these images are not in {images.source}: select others, or give another --data"
        )
    if images.images.images.in_memory:
        target = runs.images_path(name, ".npz")
        write_pixels(images, labels, target)
        return str(target)
    target = runs.images_path(name)
    write_class_folders(images, labels, target, False, lambda done, total: None)
    return str(target)


def see_by_run(workspace: Workspace, path: Path, name: str) -> int:
    """Compute the images' features by a run's encoder in the background, and show them; returns the job's number."""
    images = workspace.shown.images
    if images.images is None:
        raise UserError("it is not known where the images are: start the studio with --data")

    def work(progress: Progress) -> str:
        from dualtemp.encoder.encoder import run_encoder

        encoder = run_encoder(path, workspace.device)
        index, features = embedded(encoder, images.images, progress, workspace.notes.append)  # pyright: ignore
        features = _in_order(images, index, features)
        space = make_space(encoder_title(encoder), path, features, encoder.fingerprint)
        workspace.add_space(space)
        return f"the map is that of {name} now"

    already = "the images are being seen by a run already"
    return workspace.background.start("see", f"the images by {name}", work, alone=already).id


def _in_order(images: Collection, index: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Features in the order of the collection; zeros for images that can no longer be read."""
    assert images.images is not None
    rows = np.full(len(images.images), len(features), np.int64)
    rows[index] = np.arange(len(features))
    padded = np.concatenate([features, np.zeros((1, features.shape[1]), np.float32)])
    return padded[np.where(images.numbers < 0, len(features), rows[images.numbers])]
