"""What dualtemp keeps on disk beside results, and how it is freed. Needs no torch."""
