"""Who may do what, written out: `allowed.txt` is read by people, and compared with what the operations declare.

After a change that is meant: `python -m tests.gateway.admin.allowed`, and read the difference.
"""

from __future__ import annotations

from pathlib import Path

from gateway.admin.controllers import OPERATIONS
from gateway.admin.operation import Operation
from gateway.tenants.roles import PERMISSIONS, Role

FILE = Path(__file__).parent / "allowed.txt"
HEAD = """\
# Every operation of the admin API and the roles that may call it: in their own organization, or, after `operator:`, in
# the operating organization alone. `everybody`: whoever has a key or a session.
"""


def roles_of(operation: Operation) -> str:
    """As the file has them."""
    if operation.permission is None:
        roles = "everybody"
    else:
        roles = " ".join(role for role in Role if operation.permission in PERMISSIONS[role])
    return f"operator: {roles}" if operation.operator_only else roles


def declared() -> str:
    """The file's text by the declarations."""
    lines = sorted(f"{each.path} {each.method}" for each in OPERATIONS)
    by_line = {f"{each.path} {each.method}": each for each in OPERATIONS}
    return HEAD + "".join(f"{line}: {roles_of(by_line[line])}\n" for line in lines)


def listed() -> dict[tuple[str, str], str]:
    """Roles by method and path, as written."""
    found = {}
    for line in FILE.read_text().splitlines():
        if not line.startswith("#"):
            path, method, roles = line.split(" ", 2)
            found[method.rstrip(":"), path] = roles
    return found


if __name__ == "__main__":
    FILE.write_text(declared())
