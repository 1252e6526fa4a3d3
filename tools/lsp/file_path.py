"""A document's name for the gateway: its path in the project, never the project's path on the machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from pygls.uris import to_fs_path


def file_path(uri: str, folders: Iterable[str]) -> str:
    """The path below the innermost of the editor's folders, with `/`; only the file name outside all folders; empty if
    the URI is not a file's. folders: URIs."""
    file = _path(uri)
    if file is None:
        return ""
    roots = [root for folder in folders if (root := _path(folder)) is not None and file.is_relative_to(root)]
    if not roots:
        return file.name
    return file.relative_to(max(roots, key=lambda root: len(root.parts))).as_posix()


def _path(uri: str) -> PurePath | None:
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return PurePath(path) if path else None
