"""Who may do what, and to whose things, as `allowed.txt` has it: written by hand, and read by people and by tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from control.api.operation import Operation
from storage.roles import Role

FILE = Path(__file__).parent / "allowed.txt"
LETTERS: Mapping[str, Role] = {
    "o": Role.OWNER,
    "a": Role.ADMIN,
    "d": Role.DEVELOPER,
    "v": Role.VIEWER,
    "b": Role.BILLING,
}
NONE, NO_SUCH = "–", ""


class Cell(msgspec.Struct, frozen=True):
    """Of roles that ask for one thing: who is answered, and who is told that there is none; all others may not."""

    answered: frozenset[Role] = frozenset()
    not_found: frozenset[Role] = frozenset()

    def __str__(self) -> str:
        """As the file has it: `oa`, `oa(dv)`, `(oa)` or `–`."""
        answered, not_found = _text(self.answered), _text(self.not_found)
        return f"{answered}({not_found})" if not_found else answered or NONE

    @classmethod
    def of(cls, outcomes: Mapping[Role, str], *, answered: str, not_found: str) -> Cell:
        """From what became of each role's request."""
        return cls(*(frozenset(role for role in Role if outcomes[role] == each) for each in (answered, not_found)))

    @classmethod
    def read(cls, text: str) -> Cell:
        answered, _, not_found = text.rstrip(")").partition("(")
        return cls(_roles(answered), _roles(not_found))


class Row(msgspec.Struct, frozen=True):
    """One operation. None: it names no thing that could be so."""

    tenant_own: Cell | None = None
    """Asked by a tenant, of its own things, of the deployment's, or of none in particular."""
    tenant_others: Cell | None = None
    """Of another organization's, of a disabled one's, and of what does not exist."""
    operator_own: Cell | None = None
    """Asked by the operating organization."""
    operator_others: Cell | None = None
    operator_nobodys: Cell | None = None
    """Of what does not exist."""

    def __str__(self) -> str:
        cells = (getattr(self, name) for name in self.__struct_fields__)
        return " | ".join(f"{NO_SUCH if cell is None else cell!s:8}" for cell in cells).rstrip()

    @classmethod
    def read(cls, text: str) -> Row:
        cells = [cell.strip() for cell in text.split("|")]
        return cls(*(None if cell == NO_SUCH else Cell.read(cell) for cell in cells))


def line_of(operation: Operation, row: Row) -> str:
    """One line of the file, with its end."""
    return f"{operation.path + ' ' + operation.method:66} | {row}".rstrip() + "\n"


def listed() -> dict[tuple[str, str], Row]:
    found = {}
    for line in FILE.read_text().splitlines():
        if line.startswith("/"):
            place, _, cells = line.partition("|")
            path, method = place.split()
            found[method, path] = Row.read(cells)
    return found


def _text(roles: frozenset[Role]) -> str:
    return "".join(letter for letter, role in LETTERS.items() if role in roles)


def _roles(letters: str) -> frozenset[Role]:
    return frozenset() if letters == NONE else frozenset(LETTERS[letter] for letter in letters)
