"""Which layout of a gap's prompt completes a tenant's own code best: `slipstream usage autocomplete fit`."""
