"""Audits the path between a client and a gateway from the client's side, by the arrival of a known stream.

`measure.py`, `client.py` and `connect.py` measure; `timing.py`, `pattern.py` and `rules/` judge the measurements and do
no I/O.
"""
