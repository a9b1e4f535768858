"""Routes for runs: start, watch, stop and resume them, and see the images by a run's encoder."""

import re

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dualtemp.studio import requests as asked
from dualtemp.studio.routes import answering
from dualtemp.studio.training_runs import TrainingRuns
from dualtemp.studio.workspace import Workspace, numbers_within


class RunRoutes:
    """Training from the page.

    Args:
        workspace: the images to learn from.
        runs: the runs that are started here.
    """

    def __init__(self, workspace: Workspace, runs: TrainingRuns) -> None:
        self.workspace, self.runs = workspace, runs

    def routes(self) -> list[Route]:
        """All of them."""
        posts = {
            "/api/train": self.train,
            "/api/runs/stop": self.stop_run,
            "/api/runs/resume": self.resume_run,
            "/api/runs/see": self.see_by_run,
        }
        gets = {
            "/api/runs": self.listed_runs,
            "/api/runs/history": self.run_history,
            "/api/runs/page": self.run_page,
        }
        return [
            *(Route(address, answering(handler), methods=["POST"]) for address, handler in posts.items()),
            *(Route(address, answering(handler)) for address, handler in gets.items()),
        ]

    async def train(self, request: Request) -> Response:
        """Start a run."""
        body = await asked.read_body(request, asked.Learn)
        from dualtemp.studio.learning import start_learning

        ids = None if body.ids is None else numbers_within(body.ids, len(self.workspace.shown.images))
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
        # The sandboxed page cannot reload itself: to the guard, that would be a request from another site.
        content = re.sub(rb'<meta http-equiv="refresh"[^>]*>', b"", content, count=1)
        headers = {"content-security-policy": f"{policy}img-src data:"}
        return Response(content, media_type="text/html; charset=utf-8", headers=headers)

    async def stop_run(self, request: Request) -> Response:
        """Stop a run after its present step."""
        body = await asked.read_body(request, asked.Run)
        await run_in_threadpool(self.runs.stop, body.run)
        return JSONResponse({})

    async def resume_run(self, request: Request) -> Response:
        """Resume a run."""
        body = await asked.read_body(request, asked.Run)
        await run_in_threadpool(self.runs.resume, body.run, body.epochs)
        return JSONResponse({})

    async def see_by_run(self, request: Request) -> Response:
        """See the images by a run's encoder, which moves the map."""
        body = await asked.read_body(request, asked.Run)
        from dualtemp.studio.learning import see_by_run

        job = await run_in_threadpool(see_by_run, self.workspace, self.runs.path(body.run), body.run)
        return JSONResponse({"job": job})
