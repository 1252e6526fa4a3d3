"""`slipstream top`: gathers a deployment's current load from its database and router, and shows it in a terminal."""
