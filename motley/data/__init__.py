"""Data: sources, partitions, splits, and the shards that clients hold."""
