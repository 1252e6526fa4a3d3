"""Loads the public port's certificate at the start, and again whenever its files change.

A new pair makes a new context for later connections; open ones keep theirs. An unusable pair, such as a new certificate
whose key is still missing, never replaces a usable one.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from contracts.background_task import BackgroundTask
from contracts.errors import ConfigError
from contracts.file_stamp import FileStamp
from gateway.http.config import TlsConfig

logger = logging.getLogger(__name__)

Stamp = tuple[FileStamp | None, ...]
"""Stamps of both files; None for a missing file."""


class Certificate:
    """One pair of files. `context` serves the handshakes of new connections. `task` watches the files while it runs."""

    def __init__(self, config: TlsConfig) -> None:
        """Load the pair. Raises ConfigError if it is unusable."""
        self._certificate = Path(config.certificate_file)
        self._key = Path(config.key_file)
        self.task = BackgroundTask.every(config.reload_interval_s, self._look, "certificate")
        self._seen = self._stamp()
        self.context = self._load()

    def renew(self) -> None:
        """Load the pair again if its files have changed. Each change is tried and logged once."""
        stamp = self._stamp()  # before reading, so that a change during the read is seen the next time
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self.context = self._load()
        except ConfigError as error:
            logger.error("the certificate in force stays: %s", error.message)  # noqa: TRY400  the message is complete
        else:
            logger.info("certificate %s is in force", self._certificate)

    def _load(self) -> ssl.SSLContext:
        for name, path in (("certificate_file", self._certificate), ("key_file", self._key)):
            try:
                path.read_bytes()
            except OSError as error:
                raise ConfigError(
                    f"gateway.tls.{name}: {path} cannot be read: {error.strerror}", param=f"gateway.tls.{name}"
                ) from None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            # a dummy passphrase, or OpenSSL would prompt for one on the terminal
            context.load_cert_chain(self._certificate, self._key, password=lambda: b"-")
        except ssl.SSLError as error:
            raise ConfigError(
                f"gateway.tls: {self._certificate} and {self._key} are not a certificate and its key in PEM, without"
                f" a passphrase: {error.reason or error}",
                param="gateway.tls",
            ) from None
        return context

    def _stamp(self) -> Stamp:
        """The files' stamps, which change when a file is written or replaced."""
        return tuple(_stamp_of(path) for path in (self._certificate, self._key))

    async def _look(self) -> None:
        await asyncio.to_thread(self.renew)


def _stamp_of(path: Path) -> FileStamp | None:
    try:
        return FileStamp.of(path)
    except OSError:
        return None


def certificate_of(config: TlsConfig) -> Certificate | None:
    """The configured certificate; None for plain HTTP. Raises ConfigError."""
    if not config.certificate_file and not config.key_file:
        return None
    if not config.certificate_file or not config.key_file:
        missing = "key_file" if config.certificate_file else "certificate_file"
        raise ConfigError(f"gateway.tls.{missing}: missing; HTTPS needs both files", param=f"gateway.tls.{missing}")
    return Certificate(config)
