"""Routes for settling: almost equal images, labels in doubt, clusters."""

from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dualtemp.studio import requests as asked
from dualtemp.studio.background import Progress
from dualtemp.studio.routes import answering
from dualtemp.studio.workspace import Workspace

if TYPE_CHECKING:
    from dualtemp.studio.duplicates import Groups


class SettleRoutes:
    """Background searches and their results."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._groups: Groups | None = None
        self._doubts: list[dict[str, Any]] | None = None

    def routes(self) -> list[Route]:
        """All of them."""
        posts = {
            "/api/duplicates": self.find_duplicates,
            "/api/doubts": self.find_doubts,
            "/api/cluster": self.cluster,
        }
        gets = {"/api/duplicates/found": self.duplicates, "/api/doubts/found": self.doubts}
        return [
            *(Route(address, answering(handler), methods=["POST"]) for address, handler in posts.items()),
            *(Route(address, answering(handler)) for address, handler in gets.items()),
        ]

    async def find_duplicates(self, request: Request) -> Response:
        """Search for duplicates, in the background."""
        body = await asked.read_body(request, asked.Duplicates)
        space = self.workspace.space

        def work(progress: Progress) -> str:
            from dualtemp.studio.duplicates import find_groups

            self._groups = find_groups(space, progress, body.threshold)
            return f"{self._groups.found:,} groups of almost equal images"

        already = "duplicates are being searched for already"
        job = self.workspace.background.start("duplicates", "almost equal images", work, alone=already)
        return JSONResponse({"job": job.id})

    async def duplicates(self, request: Request) -> Response:
        """The groups that were found."""
        if self._groups is None:
            raise HTTPException(404, "search for duplicates first")
        from dualtemp.studio.duplicates import described

        tags = {i: entry.tags for i, entry in self.workspace.shown.labels.entries.items()}
        return JSONResponse({"groups": described(self._groups, tags), "all": self._groups.found})

    async def find_doubts(self, request: Request) -> Response:
        """Search for labels that are likely wrong, in the background."""
        workspace = self.workspace
        space, words = workspace.space, await run_in_threadpool(workspace.words)

        def work(progress: Progress) -> str:
            from dualtemp.studio.doubts import find_doubts

            self._doubts, about = find_doubts(space, words, progress)
            return about

        already = "labels in doubt are being searched for already"
        job = workspace.background.start("doubts", "labels in doubt", work, alone=already)
        return JSONResponse({"job": job.id})

    async def doubts(self, request: Request) -> Response:
        """The labels in doubt that were found, the worst first."""
        if self._doubts is None:
            raise HTTPException(404, "search for labels in doubt first")
        return JSONResponse({"doubts": self._doubts})

    async def cluster(self, request: Request) -> Response:
        """Group images without using labels, in the background; gives a column to color by."""
        body = await asked.read_body(request, asked.Grouped)
        workspace, space = self.workspace, self.workspace.space

        def work(progress: Progress) -> str:
            from dualtemp.studio.doubts import cluster_column

            column = cluster_column(space, body.clusters, progress)
            workspace.add_column("cluster", column)
            return f"{len(column.categories)} clusters; color by cluster"

        already = "the images are being grouped already"
        return JSONResponse({"job": workspace.background.start("cluster", "clusters", work, alone=already).id})
