"""What the router knows and the gateway tells operators: the fleet as it stands now."""
