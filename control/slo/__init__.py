"""Service level objectives: promises, the requests that kept them, the rest of the budget, and the cost."""
