"""Limits redirects after sign-in to pages of the console. Pure."""

from __future__ import annotations

import re

HOME = "/console/"
LONGEST = 2_000
_OWN = re.compile(r"/console(?:/[A-Za-z0-9\-._~!$&'()*+,;=:@%/]*)?(?:\?[A-Za-z0-9\-._~!$&'()*+,;=:@%/?]*)?"
                  r"(?:#[A-Za-z0-9\-._~!$&'()*+,;=:@%/?]*)?")  # fmt: skip


def own(page: str | None) -> str:
    """The requested address if it is a page of the console; otherwise the first page.

    It cannot contain a host: it begins with one slash and the console's name, and has no backslash, which browsers
    treat as a slash.
    """
    if page is None or len(page) > LONGEST or not _OWN.fullmatch(page) or page.startswith("/console/api/"):
        return HOME
    path = page.partition("?")[0].partition("#")[0]
    if "//" in path or any(step in (".", "..") for step in path.replace("%2e", ".").replace("%2E", ".").split("/")):
        return HOME
    return page
