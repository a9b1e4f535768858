"""Shards: many images in few tar or Parquet files, indexed once and then read in any order."""
