"""The HTTP client of spans, with bounds on the time and memory of a collector's response."""

from __future__ import annotations

from typing import Any

import requests
from urllib3.exceptions import HTTPError

MAX_BYTES = 4_096
"""Limit of a response's body: a collector gives its reason to refuse at the beginning."""


class CollectorSession(requests.Session):
    """Reads the immediately available part of each body, and closes: a timeout of `requests` limits one read, not
    all."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False  # no proxy, and no password from ~/.netrc, because no setting names them

    def request(self, *args: Any, **options: Any) -> requests.Response:
        """Like `requests.Session.request`. Raises requests.RequestException."""
        response = super().request(*args, **{**options, "stream": True})
        try:
            response._content = response.raw.read1(MAX_BYTES, decode_content=True)
        except HTTPError as error:
            raise requests.ConnectionError(error) from error
        finally:
            response.close()
        return response
