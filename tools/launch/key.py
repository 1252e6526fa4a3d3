"""Where an engine reads its API key. This module never reads the key, and the key never appears on a command line,
where every account of the machine could see it.
"""

from __future__ import annotations

import shlex

from contracts.desired_state import Pool


def read_key(pool: Pool, token_file: str) -> str:
    """A shell command that prints the key on the engine's machine; empty if the pool's engines require none."""
    if not pool.api_key_required:
        return ""
    if pool.api_key_env:
        return (
            f'printf "%s\\n" "${pool.api_key_env}"'  # printf is a shell builtin: no process has the key as an argument
        )
    return f"cat {shlex.quote(pool.api_key_file or token_file)}"


def source(pool: Pool, token_file: str) -> str:
    """Where the engine reads the key, in words."""
    if pool.api_key_env:
        return f"the environment variable {pool.api_key_env}"
    return pool.api_key_file or f"{token_file}, a copy of the deployment's token"
