"""Finds the API key for each engine: its pool's own, else the deployment's token.

Keys belong to pools and URLs of the desired state. A lease or a journal never names a key: an attacker who forged one
could have a key sent anywhere. Only a key's source is ever stored or logged, never the key.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from contracts.desired_state import Pool
from contracts.errors import ConfigError, NoEngine
from contracts.file_stamp import FileStamp
from engines.drivers.embedded import EmbeddedDriver
from engines.drivers.openai import OpenAIDriver
from engines.http.origin import Origin

LOOK_EVERY_S = 1.0
"""Least time between two checks of a key's file, and so the delay until a replaced key is used."""
KEY_BYTES = 4_096
ENGINES_REMEMBERED = 10_000
"""Most remembered engines. Engines that have left the desired state stay, because they may still run requests."""
RETRY_AFTER_S = 1.0

logger = logging.getLogger(__name__)


class KeySource(Protocol):
    """The source of each engine's key."""

    def key_for(self, url: str, pool: str = "") -> str:
        """The key in printable ASCII, or "" for none. Raises NoEngine for an unknown engine or an unreadable key."""
        ...


class OneKey:
    """The same key for every engine, for callers that know only one."""

    def __init__(self, key: str) -> None:
        """Raises ConfigError if the key cannot be sent in a header."""
        _require_sendable(key)
        self._key = key

    def key_for(self, url: str, pool: str = "") -> str:
        """The key, whatever the engine."""
        return self._key


class EngineKeys:
    """The keys of a fleet's engines. Only engines that `learn` or `follow` has added receive a key."""

    def __init__(
        self, token: Callable[[], str], environ: Mapping[str, str], metrics_token: Callable[[], str] | None = None
    ) -> None:
        """token: read when a pool without a key of its own first needs it. metrics_token: replaces it for embedded
        engines, if the caller only reads counters and load."""
        self._read_token = token
        self._read_metrics_token = metrics_token or token
        self._tokens: dict[bool, str] = {}
        """The tokens that have been read; the key is True for the metrics token."""
        self._environ = environ
        self._files: dict[str, _KeyFile] = {}
        self._by_engine: dict[tuple[str, str], _Engine] = {}
        self._by_url: dict[str, _Engine | None] = {}
        """The engine is None if pools with different keys share the URL."""
        self._problems: dict[str, str] = {}
        """The last logged problem of each pool whose key cannot be read."""
        self._warned: set[tuple[str, str]] = set()

    def require(self, pools: Iterable[Pool]) -> None:
        """Raise ConfigError unless the key of each pool can be read now, and may be sent to its replicas."""
        for pool in pools:
            pool.check_api_key()
            self._key(pool)
            for replica in pool.replicas:
                refusal = _refusal(pool, replica.url)
                if refusal is not None:
                    raise refusal
                if _readable_on_the_way(pool, replica.url) and (pool.name, replica.url) not in self._warned:
                    self._warned.add((pool.name, replica.url))
                    logger.warning(
                        "pools.%s: %s receives its key over http, readable on the way unless that network is private",
                        pool.name,
                        replica.id,
                    )

    def learn(self, pools: Iterable[Pool]) -> None:
        """Add engines that may soon be part of the fleet, without changing known ones."""
        for pool in pools:
            for replica in pool.replicas:
                if (pool.name, replica.url) not in self._by_engine:
                    engine = self._by_engine[pool.name, replica.url] = _Engine(pool, _refusal(pool, replica.url))
                    self._by_url.setdefault(replica.url, engine)

    def follow(self, pools: Iterable[Pool]) -> None:
        """Add the engines of the current fleet to the known ones, or update them."""
        if len(self._by_engine) > ENGINES_REMEMBERED:
            self._by_engine.clear()
            self._by_url.clear()
        by_url: dict[str, _Engine | None] = {}
        for pool in pools:
            for replica in pool.replicas:
                engine = self._by_engine[pool.name, replica.url] = _Engine(pool, _refusal(pool, replica.url))
                other = by_url.setdefault(replica.url, engine)
                if other is None or _place(other.pool) != _place(pool):
                    by_url[replica.url] = None
        self._by_url.update(by_url)

    def key_for(self, url: str, pool: str = "") -> str:
        """The engine's key; see `KeySource`. pool: may be left out if all pools with this URL have one key."""
        engine = self._by_engine.get((pool, url)) if pool else self._by_url.get(url)
        if engine is None:
            raise NoEngine("The engine is not part of the fleet as this process knows it.", retry_after_s=RETRY_AFTER_S)
        try:
            if engine.refusal is not None:
                raise engine.refusal
            key = self._key(engine.pool)
        except ConfigError as error:
            if self._problems.get(engine.pool.name) != error.message:
                self._problems[engine.pool.name] = error.message
                logger.error(error.message)  # noqa: TRY400  a sentence for the operator; clients get another
            raise NoEngine(
                "The engine's API key is missing; this process's log has the reason.", retry_after_s=RETRY_AFTER_S
            ) from None
        if self._problems:
            self._problems.pop(engine.pool.name, None)
        return key

    def _key(self, pool: Pool) -> str:
        if not pool.api_key_required:
            return ""
        if pool.api_key_env:
            return self._variable(pool)
        if pool.api_key_file:
            file = self._files.get(pool.api_key_file)
            if file is None:
                file = self._files[pool.api_key_file] = _KeyFile(Path(pool.api_key_file))
            return file.key(f"pools.{pool.name}.api_key_file")
        metrics = pool.driver == EmbeddedDriver.name
        token = self._tokens.get(metrics)
        if token is None:
            token = self._read_metrics_token() if metrics else self._read_token()
            _require_sendable(token)
            self._tokens[metrics] = token
        return token

    def _variable(self, pool: Pool) -> str:
        field = f"pools.{pool.name}.api_key_env"
        key = self._environ.get(pool.api_key_env, "").strip()
        if not key or not _sendable(key):
            what = "holds no key" if pool.api_key_env in self._environ else "is not set"
            raise ConfigError(
                f"{field}: the environment variable {pool.api_key_env} {what}; set it to the engines' API key where "
                "gateways, router and worker are started, or set api_key_required = false if they take none",
                param=field,
            )
        return key


class _Engine(msgspec.Struct, frozen=True):
    pool: Pool
    refusal: ConfigError | None
    """The reason why the engine receives no key."""


class _KeyFile:
    """A key in a file. If the file becomes unreadable, the last key stays in force, because rotation is not atomic."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key = ""
        self._stamp: FileStamp | None = None
        self._look_at = 0.0
        self._problem = ""

    def key(self, field: str) -> str:
        """The current key. Raises ConfigError, which names `field`, if no key has ever been read."""
        now = time.monotonic()
        if self._key and now < self._look_at:
            return self._key
        self._look_at = now + LOOK_EVERY_S
        try:
            self._look()
            self._problem = ""
        except (OSError, ValueError) as error:
            cause = error.strerror if isinstance(error, OSError) else None
            why = cause.lower() if cause else "it must hold one line of printable ASCII"
            problem = (
                f"{field}: no key can be read from {self._path}: {why}; put the engines' API key there, "
                f"readable for uid {os.geteuid()}, or set api_key_required = false if they take none"
            )
            if not self._key:
                raise ConfigError(problem, param=field) from None
            if problem != self._problem:
                logger.warning("%s; the key read before stays in force", problem)
            self._problem = problem
        return self._key

    def _look(self) -> None:
        stamp = FileStamp.of(self._path)
        if stamp == self._stamp:
            return
        with self._path.open("rb") as file:
            key = file.read(KEY_BYTES).decode("ascii").strip()
        if not key or not _sendable(key):
            raise ValueError
        self._key, self._stamp = key, stamp


def _place(pool: Pool) -> tuple[object, ...]:
    """The source of a pool's key; pools with equal sources have one key."""
    return pool.api_key_file, pool.api_key_env, pool.api_key_required, pool.driver == EmbeddedDriver.name


def _refusal(pool: Pool, url: str) -> ConfigError | None:
    """The reason why an engine receives no key. The deployment's token is sent only to our own engines; the operator
    decides where a pool's own key is sent."""
    try:
        origin = Origin.parse(url)
    except ConfigError as error:
        return error
    if not pool.api_key_required or pool.api_key_file or pool.api_key_env:
        return None
    # a service that speaks plain OpenAI under a public name usually belongs to another company
    if pool.driver == OpenAIDriver.name and origin.private is not True:
        why = "another company may run it"
    elif not origin.secure and origin.private is False:
        why = "over http it is readable on the way"
    else:
        return None
    return ConfigError(
        f"pools.{pool.name}: the deployment's token would be sent to {url}, outside private networks, and {why}; give "
        "the pool a key of its own with api_key_file or api_key_env (api_key_file may name the token's own file, if "
        "that is meant), or set api_key_required = false",
        param=f"pools.{pool.name}",
    )


def _readable_on_the_way(pool: Pool, url: str) -> bool:
    origin = Origin.parse(url)
    return pool.api_key_required and not origin.secure and origin.private is not True


def _require_sendable(token: str) -> None:
    if not _sendable(token):
        raise ConfigError("token: must be printable ASCII without spaces; write a new one into the token file")


def _sendable(key: str) -> bool:
    """Whether a header can carry the key, which must not end the header early."""
    return all(" " < character <= "~" for character in key)
