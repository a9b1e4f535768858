"""Load batches from files: decoding, worker processes, the loader."""
