"""How much hardware a workload needs and what that costs, from arithmetic alone: no clock, no network, no
randomness."""
