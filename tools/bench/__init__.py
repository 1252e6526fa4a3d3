"""`slipstream tools bench`: puts load on one deployment and measures it at the client. Token counts come from `usage`.

`measure.py` and `client.py` send requests and record times; `summary.py` and `picture.py` evaluate them without I/O.
"""
