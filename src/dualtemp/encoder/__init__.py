"""A trained encoder in use: embed, search, find near-duplicates, select images to label."""
