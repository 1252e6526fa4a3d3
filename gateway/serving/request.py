"""One request on its way through the gateway: what was asked, by which key, and what has been learnt since."""

from __future__ import annotations

import hmac
from typing import Any

from contracts.generation import Generation
from contracts.phases import PhaseClock
from gateway.auth.key_record import KeyRecord
from gateway.limits.cost import Cost
from gateway.wire.format import WireFormat
from gateway.wire.prepared import Prepared, Target


class InferenceRequest:
    """The request as the pipeline needs it. Mutable fields are filled in as the steps happen."""

    __slots__ = (
        "client_request_id",
        "clock",
        "format",
        "key",
        "prepared",
        "ran",
        "request_id",
        "target",
        "used",
    )

    def __init__(
        self,
        request_id: str,
        client_request_id: str | None,
        wire_format: WireFormat[Any],
        key: KeyRecord,
        target: Target,
        prepared: Prepared,
        clock: PhaseClock,
    ) -> None:
        self.request_id = request_id
        self.client_request_id = client_request_id
        """What the client called it; recorded, never used."""
        self.format = wire_format
        self.key = key
        self.target = target
        self.prepared = prepared
        self.clock = clock
        self.ran = False
        """Some engine took it: the request counts, whatever came of it."""
        self.used = Cost()
        """What is settled: that of the last attempt an engine took. Only it can be billed."""

    @property
    def endpoint(self) -> str:
        """Its name in metrics, journals and traces."""
        return self.format.name

    @property
    def generation(self) -> Generation:
        """What is asked."""
        return self.prepared.generation


class Salts:
    """Every organization's prefix-cache salt: nobody can compute another's, or supply it."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._known: dict[str, str] = {}

    def of(self, organization_id: str) -> str:
        """The salt; computed once per organization."""
        salt = self._known.get(organization_id)
        if salt is None:
            digest = hmac.digest(self._secret, b"cache-salt:" + organization_id.encode(), "sha256")
            salt = self._known[organization_id] = digest.hex()[:32]
        return salt
