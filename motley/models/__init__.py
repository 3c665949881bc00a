"""Architectures: SplitModel, one file a family, their table and pools, and which client has which."""
