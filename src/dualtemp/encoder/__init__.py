"""An encoder in use: embedding, searching, finding near-duplicates."""
