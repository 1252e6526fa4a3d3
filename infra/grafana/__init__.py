"""Grafana's boards as code: `boards/` has a file for each, and `dashboards/` the JSON that is generated from them.

`python -m infra.grafana` writes that JSON; a test fails if it is out of date.
"""
