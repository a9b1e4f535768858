"""Tasks of a Ray cluster: Ray finds a node with free cores, or a free GPU, for each."""

import logging
import os
import time
from collections.abc import Sequence
from typing import Any

from dualtemp.engines.carried import carry_out, outcome_of_told
from dualtemp.engines.engine import Outcome, Place, Task
from dualtemp.errors import UserError

PATIENCE = 60.0  # seconds for tasks to save when everything is stopped
CARRIED_ALONG = ("PYTHONPATH", "OMP_NUM_THREADS")  # environment variables to pass to nodes, besides DUALTEMP_*


class RayEngine:
    """An Engine of Ray tasks.

    Args:
        place: of every task; its threads are reserved as cores.
        gpus: reserved for every task.
        at_once: tasks that may be queued or running.
    """

    pause = 0.2

    def __init__(self, place: Place, gpus: float, at_once: int) -> None:
        self.place, self.at_once = place, at_once
        import ray

        self.ray = ray
        remote = ray.remote(num_cpus=place.threads, num_gpus=gpus, max_retries=0, max_calls=0)
        self.function: Any = remote(carry_out)
        self.tasks: list[RayTask] = []

    def submit(self, tasks: Sequence[Task]) -> Sequence["RayTask"]:
        """Queue tasks."""
        submitted = [
            RayTask(self.ray, self.function.options(name=f"dualtemp {task.name}").remote(task, self.place))
            for task in tasks
        ]
        self.tasks = [task for task in self.tasks if not task.is_over()] + submitted
        return submitted

    def close(self) -> None:
        """Interrupt the tasks that have not ended, letting them save, and leave the cluster."""
        left = [task for task in self.tasks if not task.is_over()]
        for task in left:
            self.ray.cancel(task.reference, force=False)
        deadline = time.monotonic() + PATIENCE
        while not all(task.is_over() for task in left) and time.monotonic() < deadline:
            time.sleep(0.2)
        for task in left:
            if not task.is_over():
                self.ray.cancel(task.reference, force=True)
        self.ray.shutdown()


class RayTask:
    """A task of Ray."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self.ray, self.reference = ray, reference

    def is_over(self) -> bool:
        """Whether the task has ended, in whatever way."""
        ready, _ = self.ray.wait([self.reference], timeout=0)
        return bool(ready)

    def outcome(self) -> Outcome | None:
        """Return how it ended; None while it waits or runs."""
        if not self.is_over():
            return None
        errors = self.ray.exceptions
        try:
            return outcome_of_told(self.ray.get(self.reference))
        except errors.TaskCancelledError:
            return Outcome(stopped=True)
        except errors.RayTaskError as error:
            if isinstance(error.cause, KeyboardInterrupt):
                return Outcome(stopped=True)
            raise
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.ObjectLostError):
            return Outcome(lost="its process or its node was killed")


def open_ray(place: Place, jobs: int | None, gpus: int) -> RayEngine:
    """Join the cluster that RAY_ADDRESS names, or that runs on this machine."""
    try:
        import ray
    except ImportError:
        raise UserError("--on ray needs Ray: pip install 'dualtemp[ray]'") from None
    variables = {name: value for name, value in os.environ.items() if name.startswith("DUALTEMP_")}
    variables |= {name: os.environ[name] for name in CARRIED_ALONG if name in os.environ}
    try:
        ray.init(
            address=os.environ.get("RAY_ADDRESS", "auto"),
            runtime_env={"env_vars": variables},
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except ConnectionError:
        raise UserError(
            "--on ray: no Ray cluster is running here; `ray start --head` starts one, RAY_ADDRESS names another"
        ) from None
    return RayEngine(place, gpus, jobs or 1000)
