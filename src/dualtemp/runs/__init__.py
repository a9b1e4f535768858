"""Runs on disk: the folder, its checkpoints, its status, and the table of measures."""
