"""A database of the test's own, and commands on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.slipstream.shell import Shell


@pytest.fixture
async def connection(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(fresh_postgres_url)
    yield connection
    await connection.close()


@pytest.fixture
def shell(fresh_postgres_url: str, data_folder: Path) -> Shell:
    return Shell(fresh_postgres_url, data_folder)
