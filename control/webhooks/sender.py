"""Sends a delivery over HTTP to a checked address, without redirects, proxies or cookies. Reads only the status."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import aiohttp
from yarl import URL

from contracts.errors import in_words
from control.api.config import WebhooksConfig
from control.webhooks.address import ForbiddenAddress, check_literal
from control.webhooks.outcome import Outcome
from control.webhooks.resolver import PublicResolver

ERROR_CHARACTERS = 300
LOOKUPS_FOR_EACH = 4
"""Threads for each delivery in progress: the system's resolver may wait longer for a name server than a delivery may
take, and cannot be stopped."""


class Sender:
    """Use it as an async context manager. resolver: for tests."""

    def __init__(self, config: WebhooksConfig, resolver: aiohttp.abc.AbstractResolver | None = None) -> None:
        self._config = config
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Sender:
        if self._resolver is None:
            self._resolver = PublicResolver(
                allow_private=self._config.allow_private_addresses,
                threads=LOOKUPS_FOR_EACH * self._config.concurrency,
            )
        # No connection outlives its delivery, and no answer of the resolver outlives its check. The connector has no
        # limit: a wait for another delivery's connection would count in no organization's share.
        connector = aiohttp.TCPConnector(resolver=self._resolver, use_dns_cache=False, force_close=True, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self._config.timeout_s),
            trust_env=False,
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: Any) -> None:
        if self._session is not None:
            await self._session.close()
        if self._resolver is not None:
            await self._resolver.close()

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> Outcome:
        """POST the body. Every failure is an Outcome. Only the status of the response is read."""
        assert self._session is not None, "use it as a context"
        began_s = time.perf_counter()
        status: int | None = None
        error: str | None = None
        try:
            target = URL(url)
            if not self._config.allow_private_addresses:
                if target.scheme != "https":
                    raise ForbiddenAddress("deliveries require https")
                check_literal(target.host or "")
            async with self._session.post(
                target,
                data=body,
                headers={**headers, "content-type": "application/json", "user-agent": "slipstream-webhooks/1"},
                allow_redirects=False,
            ) as response:
                status = response.status
                if 300 <= status < 400:
                    error = f"{status}: redirects are not followed"
                elif not 200 <= status < 300:
                    error = f"{status}: not a 2xx"
        except TimeoutError:
            error = f"no answer within {self._config.timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            error = _sentence(failure)
        return Outcome(status, error, round((time.perf_counter() - began_s) * 1e3, 3))


def _sentence(failure: BaseException) -> str:
    """The failure's text: aiohttp wraps the resolver's refusal, whose own text is the helpful one."""
    cause: BaseException | None = failure
    while cause is not None:
        if isinstance(cause, ForbiddenAddress):
            return str(cause)
        cause = getattr(cause, "os_error", None) or cause.__cause__
    return in_words(failure)[:ERROR_CHARACTERS]
