"""The errors that every package raises, as one tree with stable codes.

A code is a promise to clients: it never changes its meaning. HTTP statuses are given in `gateway/wire/errors.py` and
nowhere else; `docs/reference/errors.md` is generated from this file.

    SlipstreamError
    ├── ConfigError                 invalid_config
    ├── RequestError                the client can fix it
    │   ├── InvalidJson             invalid_json
    │   ├── InvalidField            invalid_value
    │   ├── MissingField            missing_required_parameter
    │   ├── UnknownField            unknown_parameter
    │   ├── UnsupportedField        unsupported_parameter
    │   ├── BodyTooLarge            request_too_large
    │   ├── HeadersTooLarge         request_headers_too_large
    │   ├── RequestTimeout          request_timeout
    │   ├── TransferCodingUnsupported transfer_coding_unsupported
    │   ├── ModelNotFound           model_not_found
    │   ├── ModelForbidden          model_access_denied
    │   ├── WrongEndpoint           wrong_endpoint
    │   ├── NotFound                not_found
    │   ├── MethodNotAllowed        method_not_allowed
    │   ├── ContextTooLong          context_length_exceeded
    │   ├── SpecialToken            special_token_in_text
    │   ├── EngineRefused           engine_refused
    │   ├── Conflict                conflict
    │   ├── VersionMismatch         version_mismatch
    │   ├── InvalidLink             invalid_link
    │   ├── IdempotencyMismatch     idempotency_key_reused
    │   └── IdempotencyInFlight     idempotency_key_in_flight
    ├── AuthError                   the key is the problem
    │   ├── MissingKey              missing_api_key
    │   ├── InvalidKey              invalid_api_key
    │   ├── RevokedKey              revoked_api_key
    │   ├── ExpiredKey              expired_api_key
    │   ├── WrongKeyKind            wrong_key_kind
    │   ├── TenantDisabled          tenant_disabled
    │   ├── ScopeMissing            insufficient_scope
    │   ├── SignInRefused           sign_in_refused
    │   ├── TotpRequired            totp_required
    │   ├── SessionEnded            session_ended
    │   ├── ForeignPage             foreign_page
    │   ├── CsrfRefused             csrf_token_refused
    │   └── PermissionDenied        permission_denied
    ├── LimitError                  the client's own limit
    │   ├── RateLimited             rate_limit_exceeded
    │   ├── InsufficientQuota       insufficient_quota
    │   ├── RequestTooExpensive     request_exceeds_limit
    │   └── TooManyConnections      too_many_connections
    └── ServiceError                our fault, or our load
        ├── AuthUnavailable         auth_unavailable
        ├── LimiterUnavailable      limiter_unavailable
        │   └── BudgetUnavailable   budget_unavailable
        ├── JournalUnavailable      journal_unavailable
        ├── ResponsesUnavailable    response_store_unavailable
        ├── RouterUnavailable       router_unavailable
        ├── NoEngine                no_engine_available
        ├── Overloaded              overloaded
        ├── ConnectionsExhausted    connections_exhausted
        ├── Draining                draining
        ├── PreparationTimeout      preparation_timeout
        ├── EngineFailed            engine_failed
        ├── EngineTimeout           engine_timeout
        ├── EngineLoop              engine_loop
        ├── AdapterUnavailable      adapter_unavailable
        ├── HandedOver              handed_over
        └── InternalError           internal_error
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from contracts.generation import Caller


class SlipstreamError(Exception):
    """Root of the tree.

    message: a sentence for the person who can act on it. param: the field at fault, as the client wrote it
    (`messages[2].role`). retry_after_s: time after which a retry makes sense; None if it never does. caller: the
    refused caller, if known; for the ledger only. detail: text that a client must not see, such as an internal address;
    `str` returns message and detail, for the log.
    """

    code: ClassVar[str] = "internal_error"
    caller: Caller | None = None

    def __init__(
        self, message: str, *, param: str | None = None, retry_after_s: float | None = None, detail: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.message} ({self.detail})" if self.detail else self.message


class ConfigError(SlipstreamError):
    """A setting, a model folder or a data folder is wrong, so the process does not start."""

    code = "invalid_config"


class RequestError(SlipstreamError):
    """The request cannot be served as written."""

    code = "invalid_request"


class InvalidJson(RequestError):
    """The body is not JSON; the message gives the position."""

    code = "invalid_json"


class InvalidField(RequestError):
    """A field has the wrong type or lies outside its range."""

    code = "invalid_value"


class MissingField(RequestError):
    """A required field is absent."""

    code = "missing_required_parameter"


class UnknownField(RequestError):
    """The request has a field that is not part of this API, such as an engine's own parameter."""

    code = "unknown_parameter"


class UnsupportedField(RequestError):
    """The request has a field of OpenAI's or Anthropic's API that this deployment does not support. Such fields are
    refused rather than ignored."""

    code = "unsupported_parameter"


class BodyTooLarge(RequestError):
    """The body, file, conversation or history is larger than the deployment accepts."""

    code = "request_too_large"


class HeadersTooLarge(RequestError):
    """The URL and the headers together are larger than this deployment accepts."""

    code = "request_headers_too_large"


class RequestTimeout(RequestError):
    """The request did not arrive in time."""

    code = "request_timeout"


class TransferCodingUnsupported(RequestError):
    """The body has a transfer encoding other than `chunked`."""

    code = "transfer_coding_unsupported"


class ModelNotFound(RequestError):
    """The model does not exist, or the request names no model and the key may use none that fits."""

    code = "model_not_found"


class ModelForbidden(RequestError):
    """The model exists, but the key's project has no access to it or to its tier."""

    code = "model_access_denied"


class WrongEndpoint(RequestError):
    """The model is not served at this endpoint (for example a fill-in-the-middle completion from a chat model)."""

    code = "wrong_endpoint"


class NotFound(RequestError):
    """The URL does not exist, or the key's project has no such file, batch, response or conversation."""

    code = "not_found"


class MethodNotAllowed(RequestError):
    """The URL exists, but not for this HTTP method."""

    code = "method_not_allowed"


class ContextTooLong(RequestError):
    """Prompt and output together do not fit the model's context."""

    code = "context_length_exceeded"

    def __init__(
        self, *, limit_tokens: int, prompt_tokens: int, output_tokens: int, param: str, untokenized: str | None = None
    ) -> None:
        """output_tokens: the requested number; 0 or 1 where the prompt alone is too long. untokenized: size of a prompt
        that was not tokenized because it cannot fit: "9000 bytes"; `prompt_tokens` is then a lower bound."""
        self.limit_tokens, self.prompt_tokens = limit_tokens, prompt_tokens
        least = "" if untokenized is None else f"{untokenized}, which are at least "
        # `engines/drivers/error_bodies.py` recognises both sentences in the embedded engine's errors
        facts = f"This model's context is {limit_tokens} tokens. The prompt has {least}{prompt_tokens} tokens"
        if output_tokens <= 1:
            super().__init__(f"{facts}, which leaves none for the response. Shorten the prompt.", param=param)
            return
        super().__init__(
            f"{facts} and {output_tokens} are requested as output, {prompt_tokens + output_tokens} in all. "
            "Shorten the prompt or lower max_tokens.",
            param=param,
        )


class SpecialToken(RequestError):
    """The text contains one of the model's control tokens and the engine could not distinguish it from the real one."""

    code = "special_token_in_text"


class EngineRefused(RequestError):
    """The engine itself found the request invalid; the message is the engine's."""

    code = "engine_refused"


class Conflict(RequestError):
    """The change conflicts with the current state: a name that is taken, the last owner, a secret that is still in
    use."""

    code = "conflict"


class VersionMismatch(RequestError):
    """If-Match names a version of the fleet that is no longer the newest."""

    code = "version_mismatch"


class InvalidLink(RequestError):
    """The console's one-time link was already used, has expired, or never existed."""

    code = "invalid_link"


class IdempotencyMismatch(RequestError):
    """The Idempotency-Key was used before, for a request with other content."""

    code = "idempotency_key_reused"


class IdempotencyInFlight(RequestError):
    """The first request with this Idempotency-Key is still running; retry for its response."""

    code = "idempotency_key_in_flight"


class AuthError(SlipstreamError):
    """The key does not authorize the request."""

    code = "invalid_api_key"


class MissingKey(AuthError):
    """The request has no API key."""

    code = "missing_api_key"


class InvalidKey(AuthError):
    """The key is mistyped or was never issued."""

    code = "invalid_api_key"


class RevokedKey(AuthError):
    """The key was issued and has been revoked."""

    code = "revoked_api_key"


class ExpiredKey(AuthError):
    """The key was issued and has expired."""

    code = "expired_api_key"


class WrongKeyKind(AuthError):
    """The request has an admin key where an inference key is required, or vice versa."""

    code = "wrong_key_kind"


class TenantDisabled(AuthError):
    """The key is valid, but its project or organization has been disabled."""

    code = "tenant_disabled"


class ScopeMissing(AuthError):
    """The key's scopes do not include this endpoint."""

    code = "insufficient_scope"


class SignInRefused(AuthError):
    """The console refuses the sign-in. The message gives no reason, so that it does not reveal which accounts exist."""

    code = "sign_in_refused"


class TotpRequired(AuthError):
    """The password is right, and the authenticator's code is missing, wrong or already used."""

    code = "totp_required"


class SessionEnded(AuthError):
    """The console session has expired, was ended, or never existed."""

    code = "session_ended"


class ForeignPage(AuthError):
    """A page of another site sent a request that changes state."""

    code = "foreign_page"


class CsrfRefused(AuthError):
    """A request of a session lacks the session's own `X-CSRF-Token`."""

    code = "csrf_token_refused"


class PermissionDenied(AuthError):
    """The role of the admin key's owner does not permit the operation."""

    code = "permission_denied"


PROMPT_CAP = "max_prompt_tokens"
"""The only limit that is not a counter."""


class LimitDetail(msgspec.Struct, frozen=True):
    """The limit that refused; the error body carries it as `limit`."""

    level: str
    """`organization`, `project` or `key`."""
    subject_id: str
    """The id of that organization, project or key."""
    tier: str | None
    """The tier that the limit covers; null if it covers all tiers together."""
    counter: str
    """The limit's name, such as `requests_per_minute` or `max_concurrency`."""
    limit: int
    remaining: int | None
    """The amount left now; null if the request alone is larger than the whole limit."""
    requested: int
    """The most that this request can use."""
    frees_in_ms: int | None
    """Time until this request would pass if no other requests came; null if it never would."""
    frees_at: str | None
    """The end of that time as an RFC 3339 timestamp."""


class LimitError(SlipstreamError):
    """A limit of the key, its project or its organization refused the request; `limit` in the body names it."""

    code = "rate_limit_exceeded"
    limit: LimitDetail | None = None


class RateLimited(LimitError):
    """Too many requests, tokens or concurrent streams for now; the message names the counter and when it frees."""

    code = "rate_limit_exceeded"


class InsufficientQuota(LimitError):
    """The month's budget is spent, or reserved by running requests, or zero; the message names the budget and when it
    frees."""

    code = "insufficient_quota"


class RequestTooExpensive(LimitError):
    """One request alone needs more than the whole limit: waiting will not help."""

    code = "request_exceeds_limit"


class TooManyConnections(LimitError):
    """More connections are open from one address than this deployment accepts."""

    code = "too_many_connections"


class ServiceError(SlipstreamError):
    """The platform cannot serve now. Safe to retry after `retry_after_s`."""

    code = "service_unavailable"


class AuthUnavailable(ServiceError):
    """Keys cannot be verified at the moment, so none is accepted."""

    code = "auth_unavailable"


class LimiterUnavailable(ServiceError):
    """Limits cannot be counted at the moment, and the deployment is set to refuse requests in that case."""

    code = "limiter_unavailable"


class BudgetUnavailable(LimiterUnavailable):
    """The spending of a budget is being recounted; nothing is spent until the count is known."""

    code = "budget_unavailable"


class JournalUnavailable(ServiceError):
    """The usage journal cannot be written (disk full, I/O error), so nothing is admitted."""

    code = "journal_unavailable"


class ResponsesUnavailable(ServiceError):
    """Stored responses can neither be read nor written at the moment."""

    code = "response_store_unavailable"


class RouterUnavailable(ServiceError):
    """The router is down or restarting."""

    code = "router_unavailable"


class NoEngine(ServiceError):
    """No healthy engine serves this model."""

    code = "no_engine_available"


class Overloaded(ServiceError):
    """There was no room for the request within the time it may wait."""

    code = "overloaded"
    over_share: bool = False
    """The organization uses more than its share of the pool; within that share, the request would have had room."""


class ConnectionsExhausted(ServiceError):
    """This instance has its maximum of open connections, to clients or to engines."""

    code = "connections_exhausted"


class Draining(ServiceError):
    """This instance is shutting down."""

    code = "draining"

    def __init__(
        self,
        message: str = "This instance is shutting down; try again.",
        *,
        param: str | None = None,
        retry_after_s: float | None = 1.0,
        detail: str = "",
    ) -> None:
        super().__init__(message, param=param, retry_after_s=retry_after_s, detail=detail)


class PreparationTimeout(ServiceError):
    """The prompt could not be counted in time: this instance is busy with other long prompts."""

    code = "preparation_timeout"


class EngineFailed(ServiceError):
    """The engine failed before its response was complete. A retry is possible before the first token, but not
    afterwards."""

    code = "engine_failed"


class EngineTimeout(ServiceError):
    """The engine did not answer in time."""

    code = "engine_timeout"


class EngineLoop(ServiceError):
    """A pool names this deployment's own gateway as its engine: the operator must correct the pool's URL."""

    code = "engine_loop"


class AdapterUnavailable(ServiceError):
    """The engine does not hold a tenant's LoRA adapter, and could not load it; it still serves other requests."""

    code = "adapter_unavailable"


class HandedOver(ServiceError):
    """The small model's response was discarded, and the request went to the large model. This code appears only in the
    ledger, never in a response."""

    code = "handed_over"


class InternalError(ServiceError):
    """Slipstream has a defect. The logs have the details under the request id."""

    code = "internal_error"


def in_words(error: BaseException, timeout_s: float | None = None) -> str:
    """Type and text of any exception, for the log. An exception without text, such as a time-out, gets a text.

    timeout_s: the time waited, if the caller knows it.
    """
    text = str(error)
    if not text and isinstance(error, TimeoutError):
        text = "no answer in time" if timeout_s is None else f"no answer within {timeout_s:g} s"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def forget_frames(error: BaseException | None) -> None:
    """Forget the frames of an error that has been handled, and the errors that it replaced, of which one may still be
    raised on. An attempt, a stream and a future keep their error, and its frames lead back to them: cycles that only
    the garbage collector would free."""
    while error is not None:
        error.__traceback__ = None
        error.__context__, error = None, error.__context__
