"""Reads the measurements of requests for the rules in `findings`, and the expected effects of changes."""
