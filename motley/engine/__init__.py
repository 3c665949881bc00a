"""The engine: it prepares a federation, plays its rounds, and is the only caller of methods."""
