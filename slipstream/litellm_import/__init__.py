"""Imports a LiteLLM proxy's models, prices, teams, keys and limits.

`source` reads the proxy's configuration and database. `models`, `settings` and `tenants` are pure and map each entry.
`acting` creates missing objects by the functions of the admin API. Nothing is dropped silently: if an entry is not
imported, a note has the reason and the next step.
"""
