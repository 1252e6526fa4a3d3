"""Every action of the console, read from its source: it is in `actions.txt`, an operation of the public admin API, for
roles that are written down, and the file that offers it asks whether the role may.

That each button is there for exactly the roles that may press it is test_roles.py's, in a browser; that each of these
operations, asked by a session too, writes exactly one audit row with who did it and what was before and after is
tests/control/api/test_every_endpoint.py's; that exactly the roles of the list are let in, test_allowed.py's beside
it; and of one's own account, tests/control/console/test_own_actions.py's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from control.api.operation import Operation
from control.operations import OPERATIONS, PREFIX
from tests.control.api.allowed import listed
from tests.deployment import ROOT

SOURCE = ROOT / "console" / "src"
LIST = Path(__file__).parent / "actions.txt"
"""File, method and path of each, sorted: what is added to the console or taken away is added or taken away there."""
CALL = re.compile(r"""\.(POST|PATCH|PUT|DELETE)\(\s*["'`](/[^"'`]+)["'`]""")
READ = re.compile(r"""\.GET\(\s*["'`](/[^"'`]+)["'`]""")
BARE = re.compile(r"""method:\s*["'](?:POST|PATCH|PUT|DELETE)["']""")
BLOCK = re.compile(r"^(?:export )?(?:async )?(?:function|const) (\w+)", re.MULTILINE)
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


def actions(texts: dict[Path, str]) -> list[tuple[Path, str, str]]:
    """File, method and path of each."""
    return sorted((path, method, address) for path, text in texts.items() for method, address in CALL.findall(text))


def blocks(text: str) -> dict[str, str]:
    """A file's functions and constants by name, with their text."""
    starts = [*BLOCK.finditer(text)]
    ends = [*(each.start() for each in starts[1:]), len(text)]
    return {each[1]: text[each.start() : end] for each, end in zip(starts, ends, strict=False)}


def asks(text: str, operation: Operation) -> bool:
    """Whether it asks for the operation's permission: where that is the deployment's, of whoever runs it."""
    assert operation.permission is not None
    can = "canOperate" if operation.operator_only else "can(?:Operate)?"
    return re.search(rf'\b{can}\("{re.escape(operation.permission.value)}"', text) is not None


def reads(text: str, declared: dict[tuple[str, str], Operation], permission: object) -> bool:
    """Whether what it shows takes the same permission to read: then nobody else is shown the button."""
    return any(declared["GET", each].permission is permission for each in READ.findall(text))


class Guards:
    """Which part of the source asks before an operation is offered."""

    def __init__(self, texts: dict[Path, str]) -> None:
        self._blocks = {path: blocks(text) for path, text in texts.items()}
        self._importers = importers(texts)

    def missing(
        self, operation: Operation, path: Path, name: str, seen: frozenset[tuple[Path, str]] = frozenset()
    ) -> list[str]:
        """Where it is offered without: nowhere when this block asks, or each that uses it."""
        if asks(self._blocks[path][name], operation):
            return []
        users = [
            (file, block)
            for file in (path, *sorted(self._importers[path]))
            for block, text in self._blocks[file].items()
            if (file, block) not in {*seen, (path, name)} and re.search(rf"\b{name}\b", text)
        ]
        if not users:
            return [f"{path.relative_to(SOURCE)}: {name}"]
        return [each for user in users for each in self.missing(operation, *user, seen | {(path, name)})]


def test_the_actions_are_those_of_the_list() -> None:
    found = [f"{path.relative_to(SOURCE)} {method} {address}" for path, method, address in actions(sources())]
    assert found == LIST.read_text().splitlines()


def test_every_action_is_an_operation_of_the_admin_api_and_asked_for_only_by_who_may() -> None:
    texts = sources()
    guards, roles = Guards(texts), listed()
    declared = {(each.method, PREFIX + each.path): each for each in OPERATIONS}
    for path, method, address in actions(texts):
        if address.startswith(OWN_ACCOUNT):
            continue
        place = f"{path.relative_to(SOURCE)}: {method} {address}"
        operation = declared.get((method, address))
        assert operation is not None, f"{place} is no operation"
        path_of_key = operation.path.replace("{level}/{subject_id}", "key/{key_id}")
        assert (method, path_of_key) in roles, f"{place} is not in tests/control/api/allowed.txt"
        row = roles[method, path_of_key]
        assert row.operator_own is not None
        assert row.operator_own.answered, f"{place}: nobody may"
        if operation.permission is None:
            continue
        if reads(texts[path], declared, operation.permission):
            continue
        around = [name for name, text in blocks(texts[path]).items() if f'"{address}"' in text]
        assert around, place
        for name in around:
            missing = guards.missing(operation, path, name)
            assert not missing, f"{place} is offered without asking for {operation.permission.value}: {missing}"


def test_nothing_is_changed_past_the_client() -> None:
    texts = sources()
    bare = {str(path.relative_to(SOURCE)) for path, text in texts.items() if BARE.search(text)}
    assert bare <= INFERENCE, "changes go by `api`, which sends the CSRF token"
