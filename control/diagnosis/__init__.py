"""Reads what was measured of requests, for the rules in `findings`, and what changes were expected to do."""
