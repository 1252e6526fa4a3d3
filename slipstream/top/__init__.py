"""`slipstream top`: what a deployment does now, gathered from its database and its router, and shown in a terminal."""
