"""Engines that execute independent tasks: local processes, a Slurm or a Ray cluster. Needs no torch."""
