"""Limits redirects after sign-in to pages of the console. Pure."""

from __future__ import annotations

import re

HOME = "/console/"
LONGEST = 2_000
_OWN = re.compile(r"/console(?:/[A-Za-z0-9\-._~!$&'()*+,;=:@%/]*)?(?:\?[A-Za-z0-9\-._~!$&'()*+,;=:@%/?]*)?"
                  r"(?:#[A-Za-z0-9\-._~!$&'()*+,;=:@%/?]*)?")  # fmt: skip


def own(asked: str | None) -> str:
    """The address asked for, if it is a page of ours; else the first page.

    No host can stand in it: it begins with one slash and our name, and holds no backslash, which browsers read as one.
    """
    if asked is None or len(asked) > LONGEST or not _OWN.fullmatch(asked) or asked.startswith("/console/api/"):
        return HOME
    path = asked.partition("?")[0].partition("#")[0]
    if "//" in path or any(step in (".", "..") for step in path.replace("%2e", ".").replace("%2E", ".").split("/")):
        return HOME
    return asked
