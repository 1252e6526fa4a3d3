"""Computes how much hardware a workload needs and what it costs: no clock, no network, no randomness."""
