"""Maps a configuration's settings other than its `model_list`: aliases are imported, all others are noted. Pure."""

from __future__ import annotations

from typing import Any

from slipstream.litellm_import.plan import Notes

RETRIES = "a failed attempt is repeated on another replica of the pool before its first event; there is no setting"
BREAKER = "the router takes a broken engine out of service and back by itself"
TIMEOUT = "gateway.first_event_timeout_s and gateway.event_timeout_s"
FALLBACK = "no other model answers in its place; give its pool a second replica, or a smaller model by a cascade"
OBSERVED = "metrics, OpenTelemetry and the ledger: docs/guides/monitoring.md, docs/guides/tracing.md"
STATE = "`slipstream config show` lists the settings of PostgreSQL and Valkey"
STEPS = {
    "num_retries": RETRIES,
    "retry_after": RETRIES,
    "retry_policy": RETRIES,
    "model_group_retry_policy": RETRIES,
    "allowed_fails": BREAKER,
    "allowed_fails_policy": BREAKER,
    "cooldown_time": BREAKER,
    "disable_cooldowns": BREAKER,
    "enable_pre_call_checks": "a prompt that cannot fit is refused before it is placed",
    "timeout": TIMEOUT,
    "stream_timeout": TIMEOUT,
    "request_timeout": TIMEOUT,
    "fallbacks": FALLBACK,
    "default_fallbacks": FALLBACK,
    "context_window_fallbacks": FALLBACK,
    "content_policy_fallbacks": FALLBACK,
    "routing_strategy": "router.policy; the default places by what each engine has cached",
    "routing_strategy_args": "router.policy; the default places by what each engine has cached",
    "drop_params": "unsupported fields are refused by name",
    "cache": "answers are not cached; engines' prefix caches are used",
    "cache_params": "answers are not cached; engines' prefix caches are used",
    "callbacks": OBSERVED,
    "success_callback": OBSERVED,
    "failure_callback": OBSERVED,
    "service_callback": OBSERVED,
    "service_callbacks": OBSERVED,
    "redis_host": STATE,
    "redis_port": STATE,
    "redis_password": STATE,
    "redis_url": STATE,
    "database_url": STATE,
    "master_key": "`slipstream console admin-keys create` makes a key for the admin API",
    "alerting": "webhooks, and alert rules in infra/prometheus/rules",
    "max_parallel_requests": "`slipstream customers limits set --max-concurrency`, by organization, project or key",
    "max_budget": "`slipstream customers limits set --money-per-month`, by organization, project or key",
    "guardrails": "an endpoint in front; prompts are never changed here",
}
SECTIONS = ("router_settings", "litellm_settings", "general_settings")


def aliases_of(config: dict[str, Any], notes: Notes) -> dict[str, str]:
    """Every alias with the model that it names."""
    router, library = _section(config, "router_settings"), _section(config, "litellm_settings")
    entries = {**(library.get("model_alias_map") or {}), **(router.get("model_group_alias") or {})}
    found: dict[str, str] = {}
    for alias, target in entries.items():
        hidden = isinstance(target, dict) and target.get("hidden")
        name = target.get("model") if isinstance(target, dict) else target
        if hidden:
            notes.differs(f"alias {alias}", "hidden in lists there; /v1/models names each alias with its model here")
        found[str(alias)] = str(name)
    return found


def note_settings(config: dict[str, Any], notes: Notes) -> None:
    """Add a note for each setting: none of them has the same meaning here."""
    for section in SECTIONS:
        for name, value in _section(config, section).items():
            if name in ("model_group_alias", "model_alias_map") or value in (None, [], {}):
                continue
            shown = _fallbacks(value) if name.endswith("fallbacks") else ""
            notes.left_out(f"{section}.{name}{shown}", "no counterpart of the same meaning", STEPS.get(name, ""))
    for name in sorted(config.keys() - {"model_list", *SECTIONS}):
        notes.left_out(name, "no counterpart", STEPS.get(name, ""))


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    return config.get(name) or {}


def _fallbacks(value: Any) -> str:
    """Fallbacks as text, such as ` (large to medium, small)`."""
    pairs = (
        [pair for each in value if isinstance(each, dict) for pair in each.items()] if isinstance(value, list) else []
    )
    text = "; ".join(f"{name} to {', '.join(map(str, to if isinstance(to, list) else [to]))}" for name, to in pairs)
    return f" ({text})" if text else ""
