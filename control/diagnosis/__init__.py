"""Reads what was measured of requests, for the rules of `diagnosis`, and what changes were expected to do."""
