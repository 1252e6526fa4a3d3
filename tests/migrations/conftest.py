"""Empty databases on the session's PostgreSQL server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest


@pytest.fixture
def empty_database(postgres_url: str) -> Iterator[Callable[[], str]]:
    """Makes databases nobody migrated; returns their URLs and drops them after the test."""
    made: list[str] = []

    def make() -> str:
        name = f"empty_{uuid.uuid4().hex}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        made.append(name)
        return urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))

    yield make
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name in made:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
