"""Service level objectives: the promises, the requests that kept them, the remaining error budget, and the cost."""
