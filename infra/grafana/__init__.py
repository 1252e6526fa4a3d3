"""Grafana's boards as code: a file for each in `boards/`, and the JSON made of them in `dashboards/`.

`python -m infra.grafana` writes that JSON; a test fails while it differs.
"""
