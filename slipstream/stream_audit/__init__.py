"""What lies between a client and a gateway: measured from the client's side, by the arrival of a known stream.

`measure.py`, `client.py` and `connect.py` measure; `timing.py`, `pattern.py` and `rules/` judge what was measured, and
do no I/O.
"""
