"""Every action of the console, read from its source: it is an operation of the public admin API, for roles that are
written down, and no page offers it without asking whether the role may.

That each of these operations, asked by a session too, writes exactly one audit row with who did it and what was before
and after is tests/gateway/admin/test_every_endpoint.py's; that exactly the roles of the list are let in,
test_allowed.py's beside it; and of one's own account, tests/gateway/console/test_own_actions.py's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from gateway.admin.controllers import OPERATIONS, PREFIX
from tests.deployment import ROOT
from tests.gateway.admin.allowed import listed

SOURCE = ROOT / "console" / "src"
CALL = re.compile(r"""\.(POST|PATCH|PUT|DELETE)\(\s*["'`](/[^"'`]+)["'`]""")
BARE = re.compile(r"""method:\s*["'](?:POST|PATCH|PUT|DELETE)["']""")
IMPORT = re.compile(r'(?:from|import\()\s*"(\.[^"]+)"')
OWN_ACCOUNT = "/console/api/"
"""Signing in and one's own account: of whoever is signed in."""
INFERENCE = {"pages/playground/generation.ts"}
"""Asks the inference API, with a key."""


def sources() -> dict[Path, str]:
    """Files of the console by path, without tests and what is generated."""
    files = (path for ending in ("*.ts", "*.tsx") for path in SOURCE.rglob(ending))
    return {path: path.read_text() for path in files if ".test." not in path.name and ".d." not in path.name}


def importers(texts: dict[Path, str]) -> dict[Path, set[Path]]:
    """Who imports each file."""
    found: dict[Path, set[Path]] = defaultdict(set)
    for path, text in texts.items():
        for named in IMPORT.findall(text):
            for ending in (".ts", ".tsx"):
                target = (path.parent / f"{named}{ending}").resolve()
                if target in texts:
                    found[target].add(path)
    return found


def test_every_action_is_an_operation_of_the_admin_api_and_asked_for_only_by_who_may() -> None:
    texts = sources()
    used_by, roles = importers(texts), listed()
    declared = {(each.method, PREFIX + each.path): each for each in OPERATIONS}
    actions = [(path, method, address) for path, text in texts.items() for method, address in CALL.findall(text)]
    assert len(actions) > 35
    for path, method, address in actions:
        if address.startswith(OWN_ACCOUNT):
            continue
        place = f"{path.relative_to(SOURCE)}: {method} {address}"
        operation = declared.get((method, address))
        assert operation is not None, f"{place} is no operation"
        assert (method, operation.path) in roles, f"{place} is not in tests/gateway/admin/allowed.txt"
        row = roles[method, operation.path]
        assert row.operator_own is not None
        assert row.operator_own.answered, f"{place}: nobody may"
        if operation.permission is not None:
            # a page that nobody else is led to need not ask again
            near = (path, *used_by[path], *(path.parent.glob("destinations.ts")))
            asked = f'"{operation.permission.value}"'
            assert any(asked in texts[each] for each in near), f"{place} is offered without asking for {asked}"


def test_nothing_is_changed_past_the_client() -> None:
    texts = sources()
    bare = {str(path.relative_to(SOURCE)) for path, text in texts.items() if BARE.search(text)}
    assert bare <= INFERENCE, "changes go by `api`, which sends the CSRF token"
