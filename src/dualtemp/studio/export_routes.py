"""Routes for exports: tables and class folders."""

from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dualtemp.errors import UserError
from dualtemp.studio import requests as asked
from dualtemp.studio.background import Progress
from dualtemp.studio.routes import answering
from dualtemp.studio.workspace import Workspace, numbers_within


class ExportRoutes:
    """Exports of the images' labels, predictions and features for other tools."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._promised: set[Path] = set()  # folders taken by jobs, whether written yet or not

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route("/api/export.csv", answering(self.export_csv)),
            Route("/api/export.parquet", answering(self.export_parquet)),
            Route("/api/export/folders", answering(self.export_folders), methods=["POST"]),
        ]

    async def export_csv(self, request: Request) -> Response:
        """The table of all images as CSV."""
        from dualtemp.studio.tables import table_csv

        return _download(await run_in_threadpool(table_csv, self.workspace), "images.csv", "text/csv; charset=utf-8")

    async def export_parquet(self, request: Request) -> Response:
        """The same table with features, as Parquet."""
        from dualtemp.studio.tables import table_parquet

        content = await run_in_threadpool(table_parquet, self.workspace)
        return _download(content, "images.parquet", "application/vnd.apache.parquet")

    async def export_folders(self, request: Request) -> Response:
        """Class folders in the export folder that the studio was started with."""
        body = await asked.read_body(request, asked.Folders)
        from dualtemp.studio.class_folders import write_class_folders

        workspace = self.workspace
        words = await run_in_threadpool(workspace.words)
        numbers = range(len(words)) if body.ids is None else numbers_within(body.ids, len(words))
        labels = {i: words[i] for i in numbers if words[i] is not None}
        if not labels:
            raise UserError("no image has a label yet: class folders need some")
        if workspace.shown.images.images is None:
            raise UserError("it is not known where the images are: start the studio with --data")
        target = self._new_folder()

        def work(progress: Progress) -> str:
            written = write_class_folders(workspace.shown.images, labels, target, body.copy_files, progress)
            return f"{written:,} images in {target}"

        job = workspace.background.start("export", f"class folders: {target.name}", work)
        return JSONResponse({"job": job.id, "folder": str(target)})

    def _new_folder(self) -> Path:
        """The path of a folder that does not exist, and that no job has taken."""
        count = 1
        while (target := self.workspace.places.exports / f"classes-{count}").exists() or target in self._promised:
            count += 1
        self._promised.add(target)
        return target


def _download(content: bytes, name: str, kind: str) -> Response:
    return Response(content, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})
