"""Messages between machines: the work of later issues."""
