"""The one loop of local training, the one loop of evaluation, and the passes that methods share."""
