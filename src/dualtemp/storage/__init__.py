"""Find and free what dualtemp keeps on disk besides results. Needs no torch."""
