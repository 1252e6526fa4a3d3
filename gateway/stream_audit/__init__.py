"""The known stream: lets a client measure what lies between it and this gateway."""
