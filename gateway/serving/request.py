"""Holds one request's state in the gateway: its arrival, its content, its key and its results."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from contracts.client_family import EDITORS, ClientFamily
from contracts.dated_request_id import mint
from contracts.phases import PhaseClock
from contracts.split import Side, pool_of, side_of
from gateway.auth.key_record import KeyRecord
from gateway.http.client_family import client_family
from gateway.limits.cost import Cost
from gateway.metering.pricing.price import Price
from gateway.observability.measurement import Measurement
from gateway.serving.first import First
from gateway.serving.recording import Reading, Recording
from gateway.serving.request_trace import RequestTrace
from gateway.serving.stream_timing import StreamTiming
from gateway.shadow.sample import Sample
from gateway.supersession.lineage import Keystroke
from gateway.wire.format import WireFormat
from gateway.wire.prepared import Prepared, Target
from gateway.wire.session import Session, session_of


class Arrival:
    """A request that has arrived, before its caller and content are known."""

    __slots__ = (
        "_client",
        "clock",
        "headers",
        "model",
        "network",
        "paid",
        "pool",
        "request_id",
        "trace",
        "wire_format",
    )

    tier = None
    """Unknown until the model is known."""

    def __init__(self, wire_format: WireFormat[Any], headers: Mapping[bytes, bytes], network: str = "") -> None:
        """network: the connection's network; see `ClientConnection`."""
        self.clock = PhaseClock()
        self.request_id = mint()
        self.wire_format = wire_format
        self._client: ClientFamily | None = None
        self.headers = headers
        self.network = network
        self.model: str | None = None
        """The client's name for the model, once it is known."""
        self.pool = ""
        """The pool for one of the deployment's own requests; empty for the model's pool."""
        self.paid = False
        """Whether it waited for the pace of its organization's refusals, and one refusal was charged in advance."""
        self.trace: RequestTrace | None = None
        """Its position in a trace; None if tracing is off."""

    @property
    def endpoint(self) -> str:
        """The endpoint's name in metrics, journals and traces."""
        return self.wire_format.name

    @property
    def client_request_id(self) -> str | None:
        """The client's own id for the request, cut to fit a log line. It is recorded, but never used."""
        value = self.headers.get(b"x-client-request-id") or self.headers.get(b"x-request-id")
        if not value:
            return None
        return "".join(character for character in value.decode("latin-1") if character.isprintable())[:128]

    @property
    def session(self) -> Session | None:
        """The session that the headers name; the body is not known yet."""
        return session_of(self.headers)

    @property
    def trace_id(self) -> str | None:
        """Id of its trace; None if it is in no trace that can be found."""
        return None if self.trace is None else self.trace.id

    @property
    def client(self) -> ClientFamily:
        if self._client is None:
            self._client = client_family(self.headers, self.endpoint)
        return self._client


class InferenceRequest:
    """A decoded request, with the results of the pipeline's steps."""

    __slots__ = (
        "before_end",
        "caller",
        "characters",
        "client",
        "client_request_id",
        "clock",
        "endpoint",
        "first",
        "generation",
        "headers",
        "key",
        "measurement",
        "model",
        "network",
        "pool",
        "prepared",
        "prices",
        "purpose",
        "ran",
        "reading",
        "recording",
        "request_id",
        "sample",
        "served_from",
        "superseded_by",
        "target",
        "tenant_left",
        "tier",
        "timing",
        "trace",
        "used",
        "was_ended",
        "wire_format",
    )

    def __init__(self, arrival: Arrival, key: KeyRecord, target: Target, prepared: Prepared) -> None:
        self.request_id = arrival.request_id
        self.client_request_id = arrival.client_request_id
        self.client = arrival.client
        self.headers = arrival.headers
        self.clock = arrival.clock
        self.network = arrival.network
        self.trace = arrival.trace
        self.wire_format = arrival.wire_format
        self.key = key
        self.caller = key.caller
        self.purpose = key.purpose
        """The deployment's own purpose, outside of tenants' usage and objectives; None for a customer's request."""
        self.pool = arrival.pool
        self.target = target
        self.prepared = prepared
        self.generation = prepared.generation
        # its names in metrics, journals and traces
        self.endpoint = arrival.endpoint
        self.model = prepared.generation.model
        self.tier = str(prepared.generation.tier)
        self.characters: int | None = None
        """Generated characters, as the transcoder counted them; None if uncounted or incomplete."""
        self.superseded_by: str | None = None
        """Id of a newer keystroke's request, which ended this one."""
        self.ran = False
        """Whether an engine accepted the request, which then counts, whatever the outcome."""
        self.prices: dict[str, Price] = {}
        """Prices by model, as known at arrival, for the reservation, the settlement and the bill."""
        self.used = Cost()
        """Cost to settle: that of the last attempt that an engine accepted. Only that attempt can be billed."""
        self.reading: Reading | None = None
        """Reading of an earlier request's generation, which may answer this one."""
        self.recording: Recording | None = None
        """Recording of its own generation, which may answer later ones."""
        self.first: First | None = None
        """The request to a small model before its own model; None if there is none."""
        self.sample: Sample | None = None
        """The sample of its response, for a comparison with a candidate's; None if there is none."""
        self.before_end: Callable[[], Awaitable[None]] | None = None
        """Awaited once its usage is settled, before its response's last bytes; an error fails the response."""
        self.was_ended: Callable[[], Awaitable[bool]] | None = None
        """Returns whether the tenant ended a run whose client is the worker; None if such an end is not billed."""
        self.tenant_left = False
        """Whether the tenant, who has its output so far, ended such a run."""
        self.served_from: str | None = None
        """Id of the request whose generation serves its response; None for its own."""

        self.timing: StreamTiming | None = None
        """Timing of the attempt that `measurement` describes; None without an attempt."""
        self.measurement = Measurement(stream=prepared.generation.stream, prompt_tokens=prepared.prompt_tokens)
        """Its engine and token timing so far."""

    @property
    def expected_pool(self) -> str:
        """The pool that serves its side, as far as this gateway knows."""
        model = self.target.model
        return pool_of(model, side_of(model, self.prepared.unit))

    def side_on(self, pool: str) -> Side | None:
        """Its side of its model's split if it ran on that pool; None if its model is not split.

        The router may know another split than this gateway, so a request outside its side's pool is not compared.
        """
        model = self.target.model
        if model.canary is None:
            return None
        side = side_of(model, self.prepared.unit)
        if side is not Side.BASELINE and pool != pool_of(model, side):
            return Side.BASELINE
        return side

    def compared_on(self, pool: str) -> str | None:
        """The release that compares requests on that pool with another side's; None if none does."""
        canary = self.target.model.canary
        if canary is None or not canary.control or self.side_on(pool) in (None, Side.BASELINE):
            return None
        return canary.release or None

    @property
    def session(self) -> Session | None:
        """The session that the client names, created on access; None if it names none."""
        return session_of(self.headers, self.prepared.session, self.prepared.salt)

    @property
    def trace_id(self) -> str | None:
        return None if self.trace is None else self.trace.id

    @property
    def typed(self) -> bool:
        """Whether a user types at the gap, judged by its API, its client or the user that it names. Scripts fill gaps
        too, but never type on, so they must not get empty responses."""
        prepared = self.prepared
        if prepared.gap is None or prepared.warm_up or prepared.generation.choices > 1 or self.purpose is not None:
            return False
        return prepared.typed or self.client in EDITORS

    @property
    def keystroke(self) -> Keystroke | None:
        """The keystroke that a newer request may supersede; None without one, or if the model supersedes none."""
        gap = self.prepared.gap
        if gap is None or not self.typed or not self.target.model.fim.supersede:
            return None
        return Keystroke(
            organization_id=self.caller.organization_id,
            key_id=self.caller.key_id,
            network=self.network,
            session=self.prepared.session,
            model=self.generation.public_model,
            path=gap.path,
            prefix=gap.prefix,
            suffix=gap.suffix,
        )


class Salts:
    """Every organization's prefix-cache salt. No tenant can compute or supply another's."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._known: dict[str, str] = {}
        self.deployment = hmac.digest(secret, b"deployment", "sha256").hex()[:32]
        """Identifies this deployment to its engines; equal in all of its gateways."""

    def of(self, organization_id: str) -> str:
        """The organization's salt, which is computed once."""
        salt = self._known.get(organization_id)
        if salt is None:
            digest = hmac.digest(self._secret, b"cache-salt:" + organization_id.encode(), "sha256")
            salt = self._known[organization_id] = digest.hex()[:32]
        return salt
