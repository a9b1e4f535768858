"""A run's initial weights: those of its start, or drawn from the seed, with a whitened stem if asked for."""

from collections.abc import Callable

from torch import Tensor, nn

from dualtemp import distributed
from dualtemp.config import Settings
from dualtemp.data.loading.loader import evaluation_batches
from dualtemp.data.training_data import TrainingData
from dualtemp.errors import UserError
from dualtemp.evaluation.online import few
from dualtemp.models.whitened_stem import first_convolution, set_filters, whitening_filters

WHITENED_IMAGES = 2_000  # images whose patches are used

Load = Callable[[nn.Module], None]


def initial_weights(settings: Settings, data: TrainingData, load_start: Load | None) -> Load | None:
    """Return a function that puts initial weights into a new backbone; None if it keeps those drawn from the seed.

    load_start: loads the weights of the run's start, if it has one.
    """
    if not settings.whiten_stem:
        return load_start
    if load_start is not None:
        raise UserError("--whiten-stem is for a run that begins from scratch: add --init none, or leave it out")

    def whiten(backbone: nn.Module) -> None:
        convolution = first_convolution(backbone, data.images.channels)
        if data.views.size < (side := max(convolution.kernel_size)):
            raise UserError(
                f"--whiten-stem needs views of at least {side} px, the size of the first filters, got "
                f"{data.views.size}: give a larger --image-size, or leave it out"
            )
        images = few(data.images, WHITENED_IMAGES)

        def filters() -> Tensor:
            return whitening_filters(convolution, (batch.pixels for batch in evaluation_batches(images, data.views)))

        set_filters(convolution, distributed.run_on_rank0(filters))  # once: other ranks may round differently

    return whiten
