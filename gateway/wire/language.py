"""Maps a client's name of a programming language to a known name; the client's text is not kept. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath

EXTENSIONS = {
    "bash": "shellscript", "c": "c", "cc": "cpp", "clj": "clojure", "cpp": "cpp", "cs": "csharp", "css": "css",
    "cxx": "cpp", "dart": "dart", "erl": "erlang", "ex": "elixir", "exs": "elixir", "fs": "fsharp", "go": "go",
    "groovy": "groovy", "h": "c", "hpp": "cpp", "hs": "haskell", "htm": "html", "html": "html", "java": "java",
    "jl": "julia", "js": "javascript", "json": "json", "jsx": "javascriptreact", "kt": "kotlin", "kts": "kotlin",
    "less": "less", "lua": "lua", "m": "objective-c", "md": "markdown", "mjs": "javascript", "ml": "ocaml",
    "nix": "nix", "php": "php", "pl": "perl", "proto": "proto", "ps1": "powershell", "py": "python", "pyi": "python",
    "r": "r", "rb": "ruby", "rs": "rust", "scala": "scala", "scss": "scss", "sh": "shellscript", "sol": "solidity",
    "sql": "sql", "svelte": "svelte", "swift": "swift", "tf": "terraform", "toml": "toml", "ts": "typescript",
    "tsx": "typescriptreact", "vim": "vim", "vue": "vue", "xml": "xml", "yaml": "yaml", "yml": "yaml", "zig": "zig",
}  # fmt: skip
"""File extensions, each with the language as the Language Server Protocol names it."""
OTHER_NAMES = {
    "bash": "shellscript", "c#": "csharp", "c++": "cpp", "golang": "go", "javascript-react": "javascriptreact",
    "js": "javascript", "py": "python", "rs": "rust", "sh": "shellscript", "shell": "shellscript",
    "ts": "typescript", "typescript-react": "typescriptreact",
}  # fmt: skip
NAMES = frozenset({*EXTENSIONS.values(), "dockerfile", "latex", "makefile", "plaintext"})
OTHER = "other"


def known_language(name: str) -> str | None:
    """The language of that name; `other` for an unknown one, None without a name."""
    if not name:
        return None
    name = name[:64].strip().lower()
    name = OTHER_NAMES.get(name, name)
    return name if name in NAMES else OTHER


def language_of_path(path: str) -> str:
    """The language that a file's name implies; "" if it implies none."""
    return EXTENSIONS.get(PurePosixPath(path.replace("\\", "/")).suffix[1:].lower(), "")
