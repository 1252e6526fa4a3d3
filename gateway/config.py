"""Settings of one gateway."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from contracts.fixed import Fixed
from contracts.metrics import MetricsConfig
from engines.tokenizer.config import TokenizingConfig
from gateway.auth.config import AuthConfig
from gateway.autocomplete.config import AutocompleteConfig
from gateway.desired.config import DesiredConfig
from gateway.http.config import ConnectionsConfig, TlsConfig
from gateway.limits.config import LimitsConfig
from gateway.metering.config import MeteringConfig
from gateway.prefixes.config import PrefixesConfig
from gateway.serving.config import ServingConfig
from gateway.shadow.config import ShadowConfig
from gateway.stream_audit.config import StreamAuditConfig
from gateway.wire.config import RequestConfig
from router.client_config import RouterClientConfig


class GatewayConfig(ServingConfig, frozen=True, forbid_unknown_fields=True):
    """One gateway instance. All instances of a deployment have the same values."""

    host: str = "127.0.0.1"
    """Address to listen on. 0.0.0.0 opens the API to the network."""
    port: Annotated[int, Meta(ge=1, le=65_535)] = 8000
    """Port to listen on. Several instances share it."""
    max_body_bytes: Annotated[int, Meta(ge=1_024, le=1_073_741_824)] = 8 * 1024 * 1024
    """Maximum size of a request body."""
    metrics: MetricsConfig = MetricsConfig()
    """Prometheus metrics of one instance."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages that may call the API from a browser, such as `https://app.example.com`; `*` allows all. It
    does not apply to the admin API and the console. A page that contains a key reveals it to its visitors, so use
    short-lived keys."""
    connections: ConnectionsConfig = ConnectionsConfig()
    """Limits and timeouts of clients' connections."""
    tls: TlsConfig = TlsConfig()
    """HTTPS on the public port."""
    leave_after_s: Annotated[float, Meta(ge=0, le=300)] = 5.0
    """Time after SIGTERM in which a gateway still accepts connections, closes each one after its response, and answers
    /readyz with 503, so that load balancers stop sending requests before the port closes. Under `slipstream up`, whose
    gateways have no load balancer, the default counts as 0."""
    drain_timeout_s: Annotated[float, Meta(gt=0, le=3_600)] = 30.0
    """Longest time that running requests may take to finish during shutdown."""
    trace_flush_s: Annotated[float, Meta(gt=0, le=60)] = 0.5
    """Interval between writes of request traces to the database."""
    tokenizing: TokenizingConfig = TokenizingConfig()
    """Counting and encoding prompts."""
    requests: RequestConfig = RequestConfig()
    """Limits of one request."""
    router: RouterClientConfig = RouterClientConfig()
    """The connection to the router."""
    auth: AuthConfig = AuthConfig()
    """Key verification."""
    autocomplete: AutocompleteConfig = AutocompleteConfig()
    """Editors' reports about completions."""
    prefixes: PrefixesConfig = PrefixesConfig()
    """Measurement of shared prompt prefixes."""
    shadow: ShadowConfig = ShadowConfig()
    """Copies of requests to candidates."""
    stream_audit: Fixed[StreamAuditConfig] = StreamAuditConfig()
    """The stream with which networks are audited."""
    desired: Fixed[DesiredConfig] = DesiredConfig()
    """Following the desired state."""
    limits: LimitsConfig = LimitsConfig()
    """Rate limits."""
    metering: MeteringConfig = MeteringConfig()
    """Journal and ledger."""
