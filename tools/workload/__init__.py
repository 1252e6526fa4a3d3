"""What a deployment's own traffic is like, and as a trace that can be simulated. From the ledger and prefix samples."""
