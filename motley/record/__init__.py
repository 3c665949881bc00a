"""What a run writes and reads: its folder, rows, checkpoints and summary. Nothing here is ever unpickled."""
