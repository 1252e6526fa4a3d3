"""Describes a deployment's own traffic and exports it as a trace to simulate, from the ledger and prefix samples."""
