"""Grids of runs: tables of settings, each cell run with several seeds and compared by intervals. Needs no torch."""
