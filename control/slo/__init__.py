"""Service level objectives: what is promised, which requests kept it, what is left of the budget, what that cost."""
