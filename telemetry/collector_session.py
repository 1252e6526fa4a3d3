"""The HTTP client of spans: an answer of a collector's takes no more time and memory than it is worth."""

from __future__ import annotations

from typing import Any

import requests
from urllib3.exceptions import HTTPError

MOST_BYTES = 4_096
"""Of an answer's body; why a collector refuses is said at its beginning."""


class CollectorSession(requests.Session):
    """Reads of each body what comes at once, and closes: a time-out of `requests` is one of each read, not of all."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False  # no proxy, and no password from ~/.netrc, that no setting of ours names

    def request(self, *args: Any, **options: Any) -> requests.Response:
        """As of `requests.Session`. Raises requests.RequestException."""
        response = super().request(*args, **{**options, "stream": True})
        try:
            response._content = response.raw.read1(MOST_BYTES, decode_content=True)
        except HTTPError as error:
            raise requests.ConnectionError(error) from error
        finally:
            response.close()
        return response
