"""A running deployment that is made ill on purpose: engines, links and clients that can be, and the causes."""
