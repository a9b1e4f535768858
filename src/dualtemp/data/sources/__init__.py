"""Sources of images: named sets, folders, files, shards; each opens as Splits."""
