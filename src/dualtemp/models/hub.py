"""Files of the Hugging Face hub: from its cache on this disk, else fetched, if the hub answers at once."""

import os
import threading
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path

SECONDS = 3.0  # that the hub has to answer


def hub_file(repository: str, names: tuple[str, ...]) -> Path | None:
    """Give the first of these files that the cache or the hub has; None if neither can be had.

    Without a network the library itself would try for half a minute: the hub is asked once, briefly, before.
    """
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    for name in names:
        cached = try_to_load_from_cache(repository, name)
        if isinstance(cached, str) and os.path.isfile(cached):
            return Path(cached)
    if not hub_answers():
        return None
    for name in names:
        try:
            return Path(hf_hub_download(repository, name, etag_timeout=SECONDS))
        except Exception:  # not there, not allowed, or a network that fails in one of many ways
            continue
    return None


def hub_answers() -> bool:
    """Whether the hub can be reached; HF_HUB_OFFLINE says that it is not to be tried."""
    offline = any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in _OFFLINE)
    return not offline and _asked()


_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


@cache
def _asked() -> bool:
    from huggingface_hub import constants

    answered = threading.Event()

    def ask() -> None:
        try:
            request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
            with urllib.request.urlopen(request, timeout=SECONDS):
                answered.set()
        except urllib.error.HTTPError:
            answered.set()
        except (OSError, ValueError):
            pass

    # A thread, for looking up a name can take longer than any timeout of the connection.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(SECONDS)
    return answered.is_set()
