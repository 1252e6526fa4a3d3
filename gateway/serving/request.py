"""One request on its way through the gateway: its arrival, content, key, and later findings."""

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
    """Unknown before the model."""

    def __init__(self, wire_format: WireFormat[Any], headers: Mapping[bytes, bytes], network: str = "") -> None:
        """network: of its connection, see `ClientConnection`."""
        self.clock = PhaseClock()
        self.request_id = mint()
        self.wire_format = wire_format
        self._client: ClientFamily | None = None
        self.headers = headers
        self.network = network
        self.model: str | None = None
        """The client's name for the model, as soon as it is known."""
        self.pool = ""
        """The pool it is to run on, for the deployment's own requests; empty: the model's."""
        self.paid = False
        """It waited for the pace of its organization's refusals, and one more refusal was charged in advance."""
        self.trace: RequestTrace | None = None
        """Its position in a trace; None: tracing is off."""

    @property
    def endpoint(self) -> str:
        """Its name in metrics, journals and traces."""
        return self.wire_format.name

    @property
    def client_request_id(self) -> str | None:
        """The client's own id for it; recorded, never used. Cut to fit a log line."""
        given = self.headers.get(b"x-client-request-id") or self.headers.get(b"x-request-id")
        if not given:
            return None
        return "".join(character for character in given.decode("latin-1") if character.isprintable())[:128]

    @property
    def session(self) -> Session | None:
        """The session that its headers name: its body is not known yet."""
        return session_of(self.headers)

    @property
    def trace_id(self) -> str | None:
        """Id of its trace; None: it is in no trace that can be found."""
        return None if self.trace is None else self.trace.id

    @property
    def client(self) -> ClientFamily:
        if self._client is None:
            self._client = client_family(self.headers, self.endpoint)
        return self._client


class InferenceRequest:
    """The request as the pipeline needs it. Mutable fields are filled in as the steps happen."""

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
        """The deployment's own purpose: no tenant's usage, and outside of tenants' objectives. None: a customer's."""
        self.pool = arrival.pool
        self.target = target
        self.prepared = prepared
        self.generation = prepared.generation
        # what metrics, journals and traces name it by
        self.endpoint = arrival.endpoint
        self.model = prepared.generation.model
        self.tier = prepared.generation.tier.value
        self.characters: int | None = None
        """Generated, as the transcoder counted them; None: not counted, or not complete."""
        self.superseded_by: str | None = None
        """The request of a newer keystroke, which ended this one."""
        self.ran = False
        """An engine accepted it: the request counts, whatever the outcome."""
        self.prices: dict[str, Price] = {}
        """By model: the price known at arrival, for the reservation, the settlement and the bill."""
        self.used = Cost()
        """Settled usage: that of the last attempt that an engine accepted. Only it can be billed."""
        self.reading: Reading | None = None
        """Reading of an earlier request's generation, which may answer this one."""
        self.recording: Recording | None = None
        """Recording of its own generation, which may answer later ones."""
        self.first: First | None = None
        """Asked of a small model before its own is; None: it is not."""
        self.sample: Sample | None = None
        """Its response is kept, to be compared with a candidate's."""
        self.before_end: Callable[[], Awaitable[None]] | None = None
        """Awaited once its usage is settled, before its response's last bytes: an error fails the response."""
        self.was_ended: Callable[[], Awaitable[bool]] | None = None
        """Of a run whose client is the worker: whether the tenant ended it; None: such an end is not billed."""
        self.tenant_left = False
        """The tenant, who has its output so far, ended such a run."""
        self.served_from: str | None = None
        """The request whose generation made its response; None: its own."""

        self.timing: StreamTiming | None = None
        """Timing of the attempt that `measurement` describes; None: no attempt."""
        self.measurement = Measurement(stream=prepared.generation.stream, prompt_tokens=prepared.prompt_tokens)
        """Its engine and token timing so far."""

    @property
    def expected_pool(self) -> str:
        """The pool that serves its side, as far as this gateway knows."""
        model = self.target.model
        return pool_of(model, side_of(model, self.prepared.unit))

    def side_on(self, pool: str) -> Side | None:
        """Its side of its model's split if it ran on that pool; None: its model is not split.

        The router may know a newer or older split than this gateway: a request that ran outside its side's pool is not
        compared.
        """
        model = self.target.model
        if model.canary is None:
            return None
        side = side_of(model, self.prepared.unit)
        if side is not Side.BASELINE and pool != pool_of(model, side):
            return Side.BASELINE
        return side

    def compared_on(self, pool: str) -> str | None:
        """The release that compares what ran on that pool with another side's; None: none does."""
        canary = self.target.model.canary
        if canary is None or not canary.control or self.side_on(pool) in (None, Side.BASELINE):
            return None
        return canary.release or None

    @property
    def session(self) -> Session | None:
        """The session that the client names, made when it is asked for; None: it names none."""
        return session_of(self.headers, self.prepared.session, self.prepared.salt)

    @property
    def trace_id(self) -> str | None:
        return None if self.trace is None else self.trace.id

    @property
    def typed(self) -> bool:
        """A user types at the gap, by its API, its client or the user that it names. Scripts fill gaps too, and never
        type on: they must not get empty responses."""
        prepared = self.prepared
        if prepared.gap is None or prepared.warm_up or prepared.generation.choices > 1 or self.purpose is not None:
            return False
        return prepared.typed or self.client in EDITORS

    @property
    def keystroke(self) -> Keystroke | None:
        """The keystroke that a newer request may supersede; None: none is typed, or the model supersedes none."""
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
    """Every organization's prefix-cache salt: no tenant can compute or supply another's."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._known: dict[str, str] = {}
        self.deployment = hmac.digest(secret, b"deployment", "sha256").hex()[:32]
        """Names this deployment to its engines, the same for all its gateways."""

    def of(self, organization_id: str) -> str:
        """The salt; computed once per organization."""
        salt = self._known.get(organization_id)
        if salt is None:
            digest = hmac.digest(self._secret, b"cache-salt:" + organization_id.encode(), "sha256")
            salt = self._known[organization_id] = digest.hex()[:32]
        return salt
