"""Takes over what a LiteLLM proxy serves and to whom: models, prices, teams, keys and limits.

`source` reads its configuration and its database, `models`, `settings` and `tenants` decide purely what becomes of each
entry, and `acting` makes what is missing by the functions of the admin API. Nothing is dropped silently: an entry is
imported, or a note says why not and what to do.
"""
