"""A package, for fixtures of its scope: their processes end with its last test."""
