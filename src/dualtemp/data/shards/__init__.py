"""Shards: many images in few files, tar or Parquet, indexed once and then read at any place."""
