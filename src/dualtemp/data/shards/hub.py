"""Sets of the Hugging Face hub: their shards, in the cache of the hub's own library."""

from dualtemp.errors import UserError

HUB = "hf:"
PATTERNS = ("*.parquet", "*.tar")


def hub_folder(word: str) -> str:
    """Return the local folder with the shards of a set; fetch those that are missing.

    word: NAME, or OWNER/NAME, with :CONFIGURATION (a folder of the set) and @REVISION if wanted.
    """
    name, _, revision = word.partition("@")
    name, _, folder = name.partition(":")
    wanted = [f"{folder}/{pattern}" if folder else pattern for pattern in PATTERNS]
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError
    except ImportError:
        raise UserError(f"{HUB}{word}: needs the hub's library: pip install huggingface_hub") from None
    try:
        found = snapshot_download(name, repo_type="dataset", revision=revision or None, allow_patterns=wanted)
    except RepositoryNotFoundError:
        raise UserError(f"{HUB}{word}: the hub has no such set, or not for you; check the name, or log in") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:150] or type(error).__name__
        raise UserError(f"{HUB}{word}: the hub cannot be reached, and the set is not in its cache ({reason})") from None
    return f"{found}/{folder}" if folder else found
