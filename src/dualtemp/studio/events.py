"""News for every open page, as server-sent events: all tabs learn what one tab changes or a background job finishes."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

WAITING = 1_000  # events by which a page may lag behind; beyond that it is told to reload everything
QUIET = 15.0  # seconds without news after which a comment keeps the connection alive


class News:
    """Sends news from any thread to all listeners."""

    def __init__(self) -> None:
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Queue[str | None]]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def publish(self, kind: str, **content: Any) -> None:
        """Send an event to all listeners."""
        text = f"event: {kind}\ndata: {json.dumps(content)}\n\n"
        with self._lock:
            for loop, queue in self._listeners:
                with suppress(RuntimeError):  # the server has ended; its loop is closed
                    loop.call_soon_threadsafe(_put, queue, text)

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            self._closed = True
            for loop, queue in self._listeners:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(queue.put_nowait, None)

    async def listen(self, first: str) -> AsyncIterator[str]:
        """Yield `first`, then news as it comes, in the format of server-sent events."""
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        me = (asyncio.get_running_loop(), queue)
        with self._lock:
            self._listeners.add(me)
        try:
            yield f"event: hello\ndata: {first}\n\n"
            while not self._closed:
                try:
                    text = await asyncio.wait_for(queue.get(), QUIET)
                except TimeoutError:
                    yield ": quiet\n\n"
                    continue
                if text is None:
                    return
                yield text
        finally:
            with self._lock:
                self._listeners.discard(me)


def _put(queue: "asyncio.Queue[str | None]", text: str) -> None:
    if queue.qsize() < WAITING:
        queue.put_nowait(text)
    elif queue.qsize() == WAITING:
        queue.put_nowait("event: lost\ndata: {}\n\n")
