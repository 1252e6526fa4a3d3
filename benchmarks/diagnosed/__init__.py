"""A running deployment with injected faults: engines, links and clients that can have them, and the causes."""
