"""The known stream: lets a client measure the network path between it and this gateway."""
