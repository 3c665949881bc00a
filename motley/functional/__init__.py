"""The mathematics of motley: pure functions from tensors to tensors, one file a topic."""
