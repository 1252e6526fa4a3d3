"""Measures how a connection comes about: look-up, TCP, TLS. With blocking sockets, in a thread of its own.

aiohttp does all three at once; clients that keep their connections pay them seldom, others with every request.
"""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import time

from cryptography import x509

from slipstream.stream_audit.measured import Connection, Tls
from slipstream.stream_audit.not_measured import NotMeasured

TRIES = 3
"""Of which the shortest counts: the others were delayed by something else."""
PROTOCOLS = ["h2", "http/1.1"]
DAY_S = 86_400


def connection_to(host: str, port: int, context: ssl.SSLContext | None, timeout_s: float) -> Connection:
    """context: for https, with the authorities that are trusted. Raises NotMeasured when there is no connection; a
    certificate that is not accepted is part of what is measured."""
    try:
        addresses, dns_ms = _addresses(host, port)
        address = _reachable(addresses, timeout_s)
        connects_ms: list[float] = []
        secured: list[Tls] = []
        for _ in range(TRIES):
            began_s = time.perf_counter()
            with socket.create_connection(address, timeout_s) as plain:
                connects_ms.append((time.perf_counter() - began_s) * 1e3)
                if context is not None:
                    secured.append(_handshake(plain, host, context))
            if secured and secured[-1].untrusted:
                break
    except OSError as error:  # TLS' errors and timeouts among them
        raise NotMeasured(f"cannot connect to {host}:{port}: {error}") from None
    return Connection(
        address=address[0],
        dns_ms=dns_ms,
        connect_ms=min(connects_ms),
        tls=min(secured, key=lambda tls: tls.handshake_ms, default=None),
    )


def _addresses(host: str, port: int) -> tuple[list[tuple[str, int]], float | None]:
    """The name's addresses, as the system orders them, and how long the look-up took."""
    try:
        return [(str(ipaddress.ip_address(host)), port)], None
    except ValueError:
        began_s = time.perf_counter()
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [(str(each[4][0]), port) for each in found], (time.perf_counter() - began_s) * 1e3


def _reachable(addresses: list[tuple[str, int]], timeout_s: float) -> tuple[str, int]:
    """The first that takes a connection, as clients choose it. Raises OSError, of the last."""
    for position, address in enumerate(addresses, 1):
        try:
            socket.create_connection(address, timeout_s).close()
            return address
        except OSError:
            if position == len(addresses):
                raise
    raise OSError("the name has no address")


def _handshake(plain: socket.socket, host: str, context: ssl.SSLContext) -> Tls:
    """One that is refused for its certificate is done again without looking at that, to tell what it is."""
    peer = plain.getpeername()
    try:
        return _secured(plain, host, context, "")
    except ssl.SSLCertVerificationError as error:
        blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(peer[:2], plain.gettimeout()) as again:
            return _secured(again, host, blind, error.verify_message)


def _secured(plain: socket.socket, host: str, context: ssl.SSLContext, untrusted: str) -> Tls:
    context.set_alpn_protocols(PROTOCOLS)
    began_s = time.perf_counter()
    with context.wrap_socket(plain, server_hostname=host) as secure:
        handshake_ms = (time.perf_counter() - began_s) * 1e3
        shown, cipher = secure.getpeercert(binary_form=True), secure.cipher()
        assert shown is not None
        assert cipher is not None
        certificate = x509.load_der_x509_certificate(shown)
        until = certificate.not_valid_after_utc
        return Tls(
            version=secure.version() or "",
            cipher=cipher[0],
            http2=secure.selected_alpn_protocol() == "h2",
            handshake_ms=handshake_ms,
            issuer=certificate.issuer.rfc4514_string(),
            expires_at=until.strftime("%Y-%m-%dT%H:%M:%SZ"),
            valid_days=(until - datetime.datetime.now(datetime.UTC)).total_seconds() / DAY_S,
            untrusted=untrusted,
        )
