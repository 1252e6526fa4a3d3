"""What a document is called to a gateway."""

from __future__ import annotations

import pytest

from tools.lsp.file_path import file_path


@pytest.mark.parametrize(
    ("uri", "folders", "named"),
    [
        ("file:///home/max/project/src/a.py", ["file:///home/max/project"], "src/a.py"),
        ("file:///home/max/project/src/a.py", ["file:///home/max", "file:///home/max/project/"], "src/a.py"),
        ("file:///home/max/project/src/a%20b.py", ["file:///home/max/project"], "src/a b.py"),
        ("file:///home/max/project2/a.py", ["file:///home/max/project"], "a.py"),
        ("file:///home/max/a.py", [], "a.py"),
        ("file:///home/max/a.py", ["vscode-remote://host/home/max"], "a.py"),
        ("untitled:Untitled-1", ["file:///home/max"], ""),
        ("", [], ""),
    ],
)
def test_a_file_is_named_by_its_place_in_the_project_and_never_on_the_machine(
    uri: str, folders: list[str], named: str
) -> None:
    assert file_path(uri, folders) == named
