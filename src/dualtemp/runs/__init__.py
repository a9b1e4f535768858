"""Runs on disk: the folder, its checkpoints, what state it is in, and what is recorded of it."""
