"""`slipstream usage autocomplete fit`: finds the layout of a gap's prompt that completes a tenant's own code best."""
