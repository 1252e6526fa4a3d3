"""One request on its way through the gateway: what was asked, by which key, and what has been learnt since."""

from __future__ import annotations

import hmac

from contracts.generation import Generation
from contracts.phases import PhaseClock
from gateway.auth.key_record import KeyRecord
from gateway.limits.cost import Cost
from gateway.wire.openai.prepare import Prepared, Target


class InferenceRequest:
    """The request as the exchange needs it. Mutable fields are filled in as the steps happen."""

    __slots__ = (
        "client_request_id",
        "clock",
        "endpoint",
        "key",
        "prepared",
        "ran",
        "request_id",
        "response_id",
        "target",
        "used",
    )

    def __init__(
        self,
        request_id: str,
        client_request_id: str | None,
        endpoint: str,
        key: KeyRecord,
        target: Target,
        prepared: Prepared,
        clock: PhaseClock,
    ) -> None:
        self.request_id = request_id
        self.response_id = response_id_of(request_id, endpoint)
        self.client_request_id = client_request_id
        """What the client called it; recorded, never used."""
        self.endpoint = endpoint
        self.key = key
        self.target = target
        self.prepared = prepared
        self.clock = clock
        self.ran = False
        """Some engine took it: the request counts, whatever came of it."""
        self.used = Cost()
        """What is settled: that of the last attempt an engine took. Only it can be billed."""

    @property
    def generation(self) -> Generation:
        """What is asked."""
        return self.prepared.generation


def response_id_of(request_id: str, endpoint: str) -> str:
    """The `id` inside answers, in OpenAI's form."""
    return f"{'chatcmpl' if endpoint == 'chat' else 'cmpl'}-{request_id.removeprefix('req_')}"


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
