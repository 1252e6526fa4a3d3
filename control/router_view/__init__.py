"""The router's view of the fleet, for operators."""
