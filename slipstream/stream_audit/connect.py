"""Measures the steps of a connection: look-up, TCP, TLS. It uses blocking sockets, in its own thread.

aiohttp does all three in one call. Clients that keep their connections rarely pay for them, others with every request.
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
"""Number of tries; the shortest counts, because the others were delayed by something else."""
PROTOCOLS = ["h2", "http/1.1"]
DAY_S = 86_400


def connection_to(host: str, port: int, context: ssl.SSLContext | None, timeout_s: float) -> Connection:
    """Measure a connection. context: for https, with the trusted authorities. Raises NotMeasured if it fails, but not
    for an untrusted certificate, which is part of the measurement."""
    try:
        addresses, dns_ms = _addresses(host, port)
        address = _reachable(addresses, timeout_s)
        connects_ms: list[float] = []
        handshakes: list[Tls] = []
        for _ in range(TRIES):
            began_s = time.perf_counter()
            with socket.create_connection(address, timeout_s) as plain:
                connects_ms.append((time.perf_counter() - began_s) * 1e3)
                if context is not None:
                    handshakes.append(_handshake(plain, host, context))
            if handshakes and handshakes[-1].untrusted:
                break
    except OSError as error:  # includes TLS errors and timeouts
        raise NotMeasured(f"cannot connect to {host}:{port}: {error}") from None
    return Connection(
        address=address[0],
        dns_ms=dns_ms,
        connect_ms=min(connects_ms),
        tls=min(handshakes, key=lambda tls: tls.handshake_ms, default=None),
    )


def _addresses(host: str, port: int) -> tuple[list[tuple[str, int]], float | None]:
    """The name's addresses in the system's order, and the duration of the look-up in ms."""
    try:
        return [(str(ipaddress.ip_address(host)), port)], None
    except ValueError:
        began_s = time.perf_counter()
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [(str(each[4][0]), port) for each in found], (time.perf_counter() - began_s) * 1e3


def _reachable(addresses: list[tuple[str, int]], timeout_s: float) -> tuple[str, int]:
    """The first address that accepts a connection, as clients choose it. Raises the last address's OSError."""
    for position, address in enumerate(addresses, 1):
        try:
            socket.create_connection(address, timeout_s).close()
            return address
        except OSError:
            if position == len(addresses):
                raise
    raise OSError("the name has no address")


def _handshake(plain: socket.socket, host: str, context: ssl.SSLContext) -> Tls:
    """A handshake. If the certificate is refused, this repeats it without verification, to read the certificate."""
    peer = plain.getpeername()
    try:
        return _secured(plain, host, context, "")
    except ssl.SSLCertVerificationError as error:
        lenient = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        lenient.check_hostname, lenient.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(peer[:2], plain.gettimeout()) as second:
            return _secured(second, host, lenient, error.verify_message)


def _secured(plain: socket.socket, host: str, context: ssl.SSLContext, untrusted: str) -> Tls:
    context.set_alpn_protocols(PROTOCOLS)
    began_s = time.perf_counter()
    with context.wrap_socket(plain, server_hostname=host) as secure:
        handshake_ms = (time.perf_counter() - began_s) * 1e3
        encoded, cipher = secure.getpeercert(binary_form=True), secure.cipher()
        assert encoded is not None
        assert cipher is not None
        certificate = x509.load_der_x509_certificate(encoded)
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
