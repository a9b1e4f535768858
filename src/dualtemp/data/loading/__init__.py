"""From files to batches: decoding, worker processes, the loader."""
