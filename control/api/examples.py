"""Examples of bodies and answers. They are built from one value for each field's name or type, so that none is missing
or out of date.
"""

from __future__ import annotations

import enum
from datetime import date, datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from msgspec import UnsetType

ID = "6f0c2a4e-8f57-4a53-9d3b-5f1f6f0a7c21"
VALUES: dict[str, Any] = {
    "about": "capitals, opposites, colours, days, legs",
    "accepted_draft_tokens": 310,
    "breaker": "closed",
    "breaker_reason": "",
    "speculation": "on: 4 requests at a time",
    "limited_by": "the engine reports it",
    "prefill_tokens_per_s": 18_400.0,
    "prefix_blocks": 5_120,
    "headroom_tokens": 412_000,
    "hardware": "H100",
    "running": 6,
    "acceptance_rate": 0.31,
    "organization": "acme",
    "recovery_codes": ["ab3d-efgh-jkmn-pq7s"],
    "uri": "otpauth://totp/Slipstream:ada%40example.com?secret=JBSWY3DPEHPK3PXP&issuer=Slipstream",
    "code": "492817",
    "token": "Jx1vM0c9s3lqk7TfYw2b5dRzN8hPaEuGoKiVyQ4mXtC",
    "new_password": "five other words in line",
    "current_password": "four words in a row",
    "password": "four words in a row",
    "csrf_token": "q3v9Zr0M1uJc5xQ2h7Lk8sTnWb4yEoPdGfVaHiRj6zU",
    "user_agent": "Mozilla/5.0 (X11; Linux x86_64)",
    "network": "192.0.2.7",
    "accepted": 310,
    "action": "project.update",
    "against": "version_before",
    "alpha": 0.05,
    "actor": "ada@example.com",
    "control_pool": "",
    "actor_name": "ada@example.com",
    "after": {"name": "Acme editor"},
    "after_ms": 1_180.0,
    "amount_micro": 840,
    "answer": "The capital of Norway is Oslo.",
    "attainment": 0.994,
    "attempt": 1,
    "attempts": 1,
    "before": {"name": "Acme"},
    "baseline_pool": "one",
    "billed": True,
    "before_ms": 1_550.0,
    "budget_left": 0.4,
    "burn_rate": 0.6,
    "cached_tokens": 640,
    "candidate": [2],
    "candidate_pool": "two",
    "candidate_units": 312,
    "control": [1],
    "control_units": 309,
    "log10_e": [-0.2],
    "changed": ["pool: one -> two"],
    "characters_kept": 21_400,
    "client": "tabby-agent",
    "client_request_id": "editor-41",
    "cluster": "What is the capital of {}?",
    "completion": "width * height",
    "completion_drift": 0,
    "counter": "tokens_per_minute",
    "currency": "USD",
    "description": "Budget alerts",
    "differences": ["replica one-0 of one: weight 1.0 -> 0.0"],
    "display": "sk-slip-…k3Qd",
    "driver": "sglang",
    "effect_ms": -370.0,
    "earlier": "You are a clerk. Today is 2026-11-21.",
    "email": "ada@example.com",
    "fail_alpha": 0.0025,
    "endpoint": "chat",
    "engine": "one-0",
    "engine_model": "qwen3-8b",
    "error_margin": 0.005,
    "evidence": ["Prefill took 812 ms (p95 of 640 requests) for chat, short; before, 190 ms of 610."],
    "expected_ms": -350.0,
    "finish": "complete",
    "gateway_id": "gateway-1",
    "instance": "gateway-1",
    "goal": 0.95,
    "good": 994,
    "goodput": 0.994,
    "goodput_margin": 0.02,
    "hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "key": "editor",
    "margins": {"tolerance": 0.1, "least_units": [200, 500, 1_000]},
    "language": "python",
    "length": "short",
    "left": "Paris.",
    "later": "You are a clerk. Today is 2026-11-22.",
    "level": "project",
    "long": "1h",
    "margin": 0.02,
    "correlation": 0.05,
    "model": "qwen3-8b",
    "models": ["qwen3-8b"],
    "money_counted": True,
    "month": "2026-11",
    "name": "Acme",
    "outcome": "exact",
    "part": "system",
    "phases_ms": {"queue": 1.5, "first_token": 84.0},
    "policy": {"tolerance": 0.1, "alpha": 0.05},
    "pool": "one",
    "power": 0.8,
    "previous_hash": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "offline_percent": 50,
    "price_percent": 50,
    "price_version": 7,
    "project": "Acme editor",
    "project_name": "Acme editor",
    "key_name": "editor",
    "prompt": "user: What is the capital of France?",
    "purpose": "evals",
    "promotion_alpha": 0.05,
    "prompt_drift": 0,
    "prefix": "def area(width, height):\n    return ",
    "line_item": "qwen3-8b",
    "redacted_value": "sk-slip-admin-…Yx9w",
    "not_judged": ["chat, long (4 of 30 requests)"],
    "questions": ["Do most requests share a system prompt? It decides whether prefix caching is worth it."],
    "reason": "missing: 120 sessions of the candidate",
    "reasoning_tokens": 0,
    "release": ID,
    "remaining": 360,
    "replica_id": "one-0",
    "session": "01a221ea-25a8-77c3-b966-f07322de4aac",
    "turns": 1,
    "agents": 1,
    "keys_refused": 1,
    "longest_prompt_tokens": 61_204,
    "max_prompt_tokens": 32_000,
    "p99_prompt_tokens": 40_120,
    "lost_tokens": 3_936,
    "gap_ms": 640.5,
    "request_id": "req_019aa1b2c3d4e5f60718293a4b5c6d7e",
    "rule_name": f"project:{ID}:*",
    "right": "The capital of France is Paris.",
    "rounding_micro": "0.4",
    "looks_in_all": 41,
    "metric": "errors",
    "needed_log10": 1.7,
    "schedule": "0 2 * * *",
    "score": 1.0,
    "test": "sessions with a fault",
    "secret": "shown once",
    "served": True,
    "short": "5m",
    "service_class": "standard",
    "side": "main",
    "slice": "facts",
    "slice_version": "6f1ed002ab559585",
    "slices": ["arithmetic"],
    "shadow_share": 0.05,
    "stage_share": 0.05,
    "share": 0.31,
    "state": "active",
    "stage": 2,
    "stages": [0.0, 0.01, 0.05, 0.25, 1.0],
    "status": 200,
    "subject_id": ID,
    "subject_kind": "project",
    "suffix": "\n\nprint(area(2, 3))\n",
    "target": 0.99,
    "threshold": 14.4,
    "thresholds": {"ttft_ms": [210.0, 540.0], "itl_ms": [31.0, 88.0]},
    "template": "5f1f6f0a7c21b53d",
    "tier": "chat",
    "tolerance": 0.1,
    "told": "Prefill in chunks that interleave with decoding.",
    "type": "budget.threshold_reached",
    "uncertain_attempts": 0,
    "unrounded_micro": "839.6",
    "usual_share": 0.74,
    "verdict": {"decision": "pass", "reason": "all of 1 slices passed"},
    "url": "https://example.com/hooks/slipstream",
    "version": 7,
    "waits_for": "",
    "warnings": ["Requests with a LoRA adapter are refused on the candidate's side: pools.two.max_adapters is 0."],
    "window": "1h",
    "adapter": "",
    "waited_for": "",
    "chosen": "one-0",
    "refused": "",
    "prefill": "",
    "split": "",
    "why": "it speeds up decoding, and prefill not at all",
    "wrong_amounts": 0,
    "wrong_days": 0,
    "wrong_hours": 0,
}
"""Examples by field name, where the type alone is too vague."""
ABSENT = frozenset(
    {
        "adapter",
        "agent",
        "counters",
        "disabled_at",
        "ended_at",
        "engine_model",
        "error",
        "error_code",
        "expires_at",
        "hour",
        "last_used_at",
        "night",
        "next_cursor",
        "next_page",
        "user_id",
        "batch",
        "service_tier",
        "over_share",
        "parent",
        "previous_expires_at",
        "previous_secret_expires_at",
        "reason",
        "refusal",
        "refused_version",
        "release",
        "revoked_at",
        "rule",
        "served_from",
        "session_agent",
        "session_parent",
        "trace_id",
        "valid_until",
        "warning",
    }
)
"""Fields that are null in the examples, in which nothing has ended or failed."""
OF_STRUCT: dict[tuple[str, str], Any] = {
    ("Rule", "margins"): {"json": 0.03},
    ("SliceRule", "margins"): {"json": 0.03},
    ("Adapter", "name"): "support",
    ("ConsoleLink", "url"): "https://slipstream.example.com/console/#/welcome?token=Jx1vM0c9s3lqk7TfYw2b5dRzN8hPaEuG",
    ("Methods", "password"): True,
    ("Provider", "start"): "/console/api/oidc/start",
    ("SignIn", "totp"): "492817",
    ("TotpEnrolment", "secret"): "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP",
    ("Turn", "cause"): "timestamp",
    ("CapPreview", "refused"): 12,
    ("CappedKey", "refused"): 12,
    ("Priority", "share"): 200,
    ("NewPriority", "share"): 200,
    ("Adapter", "path"): "/srv/adapters/acme-support",
    ("NewAdapter", "name"): "support",
    ("NewAdapter", "path"): "/srv/adapters/acme-support",
    ("FleetDocument", "action"): "replica.weight",
    ("FleetVersion", "action"): "replica.weight",
    ("BurntRequests", "what"): "no_engine_available",
    ("BurntRequests", "requests"): 39,
    ("BurningObjective", "counted"): 458,
    ("BurningObjective", "bad"): 39,
    ("BurningObjective", "looked_at"): 39,
    ("BurningObjective", "told"): (
        "39 of 458 requests of chat, short prompts (8.52%) broke the objective in 1h: the error budget burns at more "
        "than 14.4 times the allowed rate, over 1h and still over 5m."
    ),
    ("ClearCause", "threshold"): "5% of the requests, and 5 requests",
    ("DiagnosisOf", "sampled_share"): 0.0625,
    ("Model", "name"): "qwen3-8b",
    ("NightStatus", "missing"): ["chat: no nightly run has started yet"],
    ("NightPlan", "slices"): {"chat": ["arithmetic"]},
    ("EvalNight", "reason"): "all of 1 slices passed",
    ("NightSlice", "difference"): 0.0,
    ("NightSlice", "lower"): -0.02,
    ("NightSlice", "upper"): 0.08,
    ("NightSlice", "reason"): "not worse by 5.0 points or more: above -2.0 points",
    ("Placement", "policy"): "prefix",
    ("PlacementCandidate", "chosen"): True,
    ("Pool", "name"): "one",
    ("Replica", "id"): "one-0",
    ("Replica", "url"): "http://10.0.0.5:30000",
    ("LivePool", "name"): "one",
    ("LiveReplica", "id"): "one-0",
    ("LiveReplica", "url"): "http://10.0.0.5:30000",
    ("LiveReplica", "detail"): "polled 0.4 s ago",
    ("LiveReplica", "health"): "healthy",
}
"""Examples by struct and field, where a field's name has another meaning elsewhere."""
ALSO_SHOWN = frozenset({"replicas"})
"""Fields that the examples show although their structs omit defaults."""
KINDS: dict[Any, Any] = {
    UUID: ID,
    datetime: "2026-11-22T09:30:00Z",
    date: "2026-11-22",
    bool: False,
    int: 1_000,
    float: 12.5,
}


def example_of(kind: Any, name: str = "") -> Any:
    """An example of the type, as JSON. name: the field that holds it."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return example_of(arguments[0], name)
    if origin in (Union, UnionType):
        if NoneType in arguments and name in ABSENT:
            return None
        return example_of(next(each for each in arguments if each not in (NoneType, UnsetType)), name)
    if origin is Literal:
        return arguments[0]
    if origin in (list, tuple):
        value = VALUES.get(name)
        structs = isinstance(arguments[0], type) and issubclass(arguments[0], msgspec.Struct)
        fits = isinstance(value, list) and not structs  # `models` are names in one struct and structs in another
        return value if fits else [example_of(arguments[0], name.removesuffix("s"))]
    if origin is dict:
        return VALUES[name]
    struct = origin or kind
    if isinstance(struct, type) and issubclass(struct, msgspec.Struct):
        hints = get_type_hints(struct, include_extras=True)
        items = dict(zip(getattr(struct, "__parameters__", ()), arguments, strict=False))
        sparse = struct.__struct_config__.omit_defaults
        return {
            field.encode_name: OF_STRUCT.get((struct.__name__, field.name))
            or example_of(_filled(hints[field.name], items), field.name)
            for field in msgspec.structs.fields(struct)
            if field.required or not sparse or field.name in ALSO_SHOWN
        }
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind)).value
    if name not in VALUES and kind not in KINDS:
        raise LookupError(f"control/api/examples.py: an example for the field {name!r}, please")
    return VALUES[name] if name in VALUES else KINDS[kind]


def _filled(hint: Any, items: dict[Any, Any]) -> Any:
    """Replace the type variables of a generic struct in a hint such as `list[ItemT]`."""
    arguments = get_args(hint)
    if any(each in items for each in arguments if not isinstance(each, list | str)):
        return get_origin(hint)[tuple(items.get(each, each) for each in arguments)]
    return hint
