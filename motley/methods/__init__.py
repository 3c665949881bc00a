"""The methods, one file each beside its paper, and the two contracts that an engine calls."""
