"""`slipstream tools bench`: load on one deployment, measured from the client's side. Tokens are those of `usage`.

`measure.py` and `client.py` send and note times; `summary.py` and `picture.py` judge and draw, and do no I/O.
"""
