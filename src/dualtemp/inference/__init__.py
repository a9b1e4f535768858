"""A trained run in use: features of any images, search, near-duplicates, measurements, export."""
