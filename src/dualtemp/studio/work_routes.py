"""Addresses for working: labels, suggestions, duplicates, exports, runs, temperatures."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dualtemp.errors import UserError
from dualtemp.studio import requests as asked
from dualtemp.studio.background import Progress
from dualtemp.studio.columns import number_column
from dualtemp.studio.label_file import Change, valid_word
from dualtemp.studio.routes import answering
from dualtemp.studio.training_runs import TrainingRuns
from dualtemp.studio.workspace import Workspace, numbers_within

KEPT_ANCHORS = 4  # selections whose anchors are kept, so that a slider need not draw them again


class WorkRoutes:
    """The addresses that change something, and what they need.

    Args:
        workspace: the images, features and labels.
        runs: the runs that are started here.
    """

    def __init__(self, workspace: Workspace, runs: TrainingRuns) -> None:
        self.workspace, self.runs = workspace, runs
        self._groups: list[list[int]] | None = None
        self._doubts: list[dict[str, Any]] | None = None
        self._anchors: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._drawing = threading.Lock()

    def routes(self) -> list[Route]:
        """All of them."""
        posts = {
            "/api/label": self.label,
            "/api/tag": self.tag,
            "/api/undo": self.undo,
            "/api/suggest": self.suggest,
            "/api/duplicates": self.find_duplicates,
            "/api/doubts": self.find_doubts,
            "/api/cluster": self.cluster,
            "/api/export/folders": self.export_folders,
            "/api/train": self.train,
            "/api/runs/stop": self.stop_run,
            "/api/runs/resume": self.resume_run,
            "/api/runs/see": self.see_by_run,
            "/api/temperatures": self.temperatures,
            "/api/weigh": self.weigh_all,
        }
        gets = {
            "/api/duplicates/found": self.duplicates,
            "/api/doubts/found": self.doubts,
            "/api/export.csv": self.export_csv,
            "/api/export.parquet": self.export_parquet,
            "/api/runs": self.listed_runs,
            "/api/runs/history": self.run_history,
            "/api/runs/page": self.run_page,
        }
        return [
            *(Route(address, answering(handler), methods=["POST"]) for address, handler in posts.items()),
            *(Route(address, answering(handler)) for address, handler in gets.items()),
        ]

    def _numbers(self, ids: list[int]) -> list[int]:
        return numbers_within(ids, len(self.workspace.shown.images))

    # ---- labels

    async def label(self, request: Request) -> Response:
        """Give images a label, or take it away."""
        body = await asked.read_body(request, asked.Labeled)
        word = None if body.label is None else _word(body.label)
        numbers = self._numbers(body.ids)
        return await self._changed(lambda: self.workspace.shown.labels.set_label(numbers, word))

    async def tag(self, request: Request) -> Response:
        """Add a tag to images, or remove it."""
        body = await asked.read_body(request, asked.Tagged)
        word, numbers, labels = _word(body.tag), self._numbers(body.ids), self.workspace.shown.labels
        change = labels.remove_tag if body.remove else labels.add_tag
        return await self._changed(lambda: change(numbers, word))

    async def undo(self, request: Request) -> Response:
        """Take the newest change back."""
        return await self._changed(self.workspace.shown.labels.undo)

    async def _changed(self, make: Callable[[], Change | None]) -> Response:
        change = await run_in_threadpool(make)
        if change is None:
            raise UserError("there is nothing to undo")
        self.workspace.changed(change)
        labels = self.workspace.shown.labels
        return JSONResponse(
            {"version": change.version, "changed": len(change.entries), "ids": list(change.entries)[:10_000],
             "can_undo": labels.can_undo, "words": self.workspace.label_words(), "tags": self.workspace.tag_words()}
        )  # fmt: skip

    async def suggest(self, request: Request) -> Response:
        """Images to label next."""
        body = await asked.read_body(request, asked.Suggested)
        from dualtemp.studio.suggestions import suggest

        found = await run_in_threadpool(suggest, self.workspace, body.way, body.count)
        return JSONResponse({"ids": [int(i) for i in found.ids], "about": found.about})

    # ---- duplicates

    async def find_duplicates(self, request: Request) -> Response:
        """Search for duplicates, in the background."""
        body = await asked.read_body(request, asked.Duplicates)
        space = self.workspace.space
        if self.workspace.background.busy("duplicates"):
            raise UserError("duplicates are being searched for already")

        def work(progress: Progress) -> str:
            from dualtemp.studio.duplicates import find_groups

            self._groups = find_groups(space, progress, body.threshold)
            return f"{len(self._groups):,} groups of almost equal images"

        job = self.workspace.background.start("duplicates", "almost equal images", work)
        return JSONResponse({"job": job.id})

    async def duplicates(self, request: Request) -> Response:
        """The groups that were found."""
        if self._groups is None:
            raise HTTPException(404, "search for duplicates first")
        from dualtemp.studio.duplicates import described

        tags = {i: entry.tags for i, entry in list(self.workspace.shown.labels.entries.items())}
        groups = await run_in_threadpool(described, self._groups, self.workspace.space, tags)
        return JSONResponse({"groups": groups, "all": len(self._groups)})

    # ---- labels in doubt, clusters

    async def find_doubts(self, request: Request) -> Response:
        """Search for labels that are likely wrong, in the background."""
        workspace = self.workspace
        if workspace.background.busy("doubts"):
            raise UserError("labels in doubt are being searched for already")
        space, words = workspace.space, await run_in_threadpool(workspace.words)

        def work(progress: Progress) -> str:
            from dualtemp.studio.doubts import find_doubts

            self._doubts, about = find_doubts(space, words, progress)
            return about

        return JSONResponse({"job": workspace.background.start("doubts", "labels in doubt", work).id})

    async def doubts(self, request: Request) -> Response:
        """The labels in doubt that were found, the worst first."""
        if self._doubts is None:
            raise HTTPException(404, "search for labels in doubt first")
        return JSONResponse({"doubts": self._doubts})

    async def cluster(self, request: Request) -> Response:
        """Group the images without labels, in the background: a column to color by."""
        body = await asked.read_body(request, asked.Grouped)
        workspace, space = self.workspace, self.workspace.space
        if workspace.background.busy("cluster"):
            raise UserError("the images are being grouped already")

        def work(progress: Progress) -> str:
            from dualtemp.studio.doubts import cluster_column

            column = cluster_column(space, body.clusters, progress)
            workspace.add_column("cluster", column)
            return f"{len(column.categories)} clusters; color by cluster"

        return JSONResponse({"job": workspace.background.start("cluster", "clusters", work).id})

    # ---- exports

    async def export_csv(self, request: Request) -> Response:
        """What is known of all images, as CSV."""
        from dualtemp.studio.tables import table_csv

        return _download(await run_in_threadpool(table_csv, self.workspace), "images.csv", "text/csv; charset=utf-8")

    async def export_parquet(self, request: Request) -> Response:
        """The same with features, as Parquet."""
        from dualtemp.studio.tables import table_parquet

        content = await run_in_threadpool(table_parquet, self.workspace)
        return _download(content, "images.parquet", "application/vnd.apache.parquet")

    async def export_folders(self, request: Request) -> Response:
        """Class folders in the export folder that the studio was started with."""
        body = await asked.read_body(request, asked.Folders)
        from dualtemp.studio.class_folders import write_class_folders

        workspace = self.workspace
        words = workspace.words()
        numbers = range(len(words)) if body.ids is None else self._numbers(body.ids)
        labels = {i: words[i] for i in numbers if words[i] is not None}
        if not labels:
            raise UserError("no image has a label yet: class folders need some")
        if workspace.shown.images.images is None:
            raise UserError("it is not known where the images are: start the studio with --data")
        parent, count = workspace.places.exports, 1
        while (target := parent / f"classes-{count}").exists():
            count += 1

        def work(progress: Progress) -> str:
            written = write_class_folders(workspace.shown.images, labels, target, body.copy_files, progress)
            return f"{written:,} images in {target}"

        job = workspace.background.start("export", f"class folders: {target.name}", work)
        return JSONResponse({"job": job.id, "folder": str(target)})

    # ---- runs

    async def train(self, request: Request) -> Response:
        """Start a run."""
        body = await asked.read_body(request, asked.Learn)
        from dualtemp.studio.learning import start_learning

        ids = None if body.ids is None else self._numbers(body.ids)
        name = await run_in_threadpool(start_learning, self.workspace, self.runs, body, ids)
        return JSONResponse({"run": name})

    async def listed_runs(self, request: Request) -> Response:
        """All runs."""
        return JSONResponse({"runs": await run_in_threadpool(self.runs.listed)})

    async def run_history(self, request: Request) -> Response:
        """The curves of a run."""
        return JSONResponse(await run_in_threadpool(self.runs.history, request.query_params.get("run", "")))

    async def run_page(self, request: Request) -> Response:
        """The run's own page, in a sandbox: its scripts run, but cannot reach the studio."""
        from dualtemp.report.run_page import PAGE

        path = self.runs.path(request.query_params.get("run", "")) / PAGE
        if not path.is_file():
            raise HTTPException(404, "this run has no page yet")
        policy = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        content = await run_in_threadpool(path.read_bytes)
        headers = {"content-security-policy": f"{policy}img-src data:"}
        return Response(content, media_type="text/html; charset=utf-8", headers=headers)

    async def stop_run(self, request: Request) -> Response:
        """Stop a run after its step."""
        body = await asked.read_body(request, asked.Run)
        await run_in_threadpool(self.runs.stop, body.run)
        return JSONResponse({})

    async def resume_run(self, request: Request) -> Response:
        """Resume a run."""
        body = await asked.read_body(request, asked.Run)
        await run_in_threadpool(self.runs.resume, body.run, body.epochs)
        return JSONResponse({})

    async def see_by_run(self, request: Request) -> Response:
        """See the images by the encoder of a run: the map moves."""
        body = await asked.read_body(request, asked.Run)
        from dualtemp.studio.learning import see_by_run

        job = await run_in_threadpool(see_by_run, self.workspace, self.runs.path(body.run), body.run)
        return JSONResponse({"job": job})

    # ---- the two temperatures

    async def temperatures(self, request: Request) -> Response:
        """What the selected anchors and the keys carry of the gradient."""
        body = await asked.read_body(request, asked.Weighed)
        numbers = self._numbers(body.ids)
        return JSONResponse(await run_in_threadpool(self._weighed, numbers, body.tau_alpha, body.tau_beta))

    def _weighed(self, numbers: list[int], tau_alpha: float, tau_beta: float) -> dict[str, Any]:
        from dualtemp.studio.anchors import draw_anchors, weigh

        workspace = self.workspace
        key = (workspace.current, tuple(numbers))
        with self._drawing:
            if key not in self._anchors:
                self._anchors[key] = draw_anchors(workspace.space, workspace.shown.images, numbers, workspace.device)
                while len(self._anchors) > KEPT_ANCHORS:
                    self._anchors.popitem(last=False)
            drawn = self._anchors[key]
        return weigh(drawn, tau_alpha, tau_beta)

    async def weigh_all(self, request: Request) -> Response:
        """W of every image as an anchor, in the background."""
        body = await asked.read_body(request, asked.OneTau)
        workspace, space = self.workspace, self.workspace.space
        if workspace.background.busy("weigh"):
            raise UserError("W is being computed already")

        def work(progress: Progress) -> str:
            from dualtemp.studio.anchors import weigh_all

            W = weigh_all(space, workspace.shown.images, body.tau_beta, workspace.device, progress)
            about = f"inter-anchor weight at tau_beta {body.tau_beta:g}: how hard the image is as an anchor"
            workspace.add_column("W", number_column("anchor weight W", W, about))
            return "color by anchor weight W"

        return JSONResponse({"job": workspace.background.start("weigh", "W of every image", work).id})


def _word(text: str) -> str:
    word = valid_word(text)
    if word is None:
        raise UserError("labels and tags are printable words without |, at most 200 characters")
    return word


def _download(content: bytes, name: str, kind: str) -> Response:
    return Response(content, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})
