"""Writes docs/reference: settings, metrics, error codes and the admin API, from the code that defines them.

Run `python -m slipstream.reference docs/reference`. A test fails if the committed pages are out of date.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from contracts import errors
from contracts.errors import SlipstreamError
from contracts.fixed import SINCE, is_fixed
from slipstream import toml

REPEATED = {"local.fim": "models[].fim"}
"""Sections that are listed elsewhere."""
HEAD = "<!-- Written by `python -m slipstream.reference docs/reference`; changes made here are lost. -->\n\n"


def pages() -> dict[str, str]:
    """The content of every generated page by file name."""
    from slipstream.admin_reference import api_page, roles_page

    return {
        "settings.md": settings_page(),
        "metrics.md": metrics_page(),
        "errors.md": errors_page(),
        "admin-api.md": HEAD + api_page(),
        "admin-roles.md": HEAD + roles_page(),
    }


SETTINGS = """# Settings

Slipstream reads settings from `slipstream.toml` in the working directory (or from `--config FILE`). Environment
variables take precedence: `SLIPSTREAM_GATEWAY__PORT=9000` sets `gateway.port`. With an unknown name or a value out of
range, no process starts. `slipstream config show` prints the values in force; `slipstream config check` only checks
the settings.
"""
CONSTANTS = f"""
## Constants

These were settings before {SINCE}. If a settings file still names one, Slipstream logs a warning and uses the value
here.

| constant | value | meaning |
|---|---|---|
"""
METRICS = """# Metrics

Each process serves its metrics in Prometheus's text format at its metrics port (`gateway.metrics`, `router.metrics`,
`engine.metrics`, `worker.metrics`). They include prometheus_client's `process_*`: CPU time, memory, open files and
start time. `up` gives every process a port and lists the ports for Prometheus
([scraping](../guides/monitoring.md#scraping)). Counters end in `_total` and restart at 0 with the process. A histogram
has `_bucket`, `_sum` and `_count`.
"""
ERRORS = """# Errors

An error has OpenAI's body: `{"error": {"message", "type", "param", "code"}}`. Errors of
[Messages](../concepts/messages.md#errors) and [llama.cpp's paths](../concepts/autocomplete-apis.md) have the bodies of
those APIs. `param` names the invalid field as in the request (`messages[2].content`). Codes do not change; messages
may. 429 means that the request exceeds one of your limits. 503 (Messages: 529) means that the deployment cannot serve
the request now. Both have `Retry-After` and `retry-after-ms` if a retry can succeed. If a stream fails after it has
begun, its last event is the error, and no `[DONE]` follows.

| code | status | type | meaning |
|---|---|---|---|
"""


def settings_page() -> str:
    """Every setting with its type, default and meaning."""
    from slipstream.settings import Settings

    parts = [HEAD, SETTINGS]
    for section in msgspec.structs.fields(Settings):
        parts.append(f"\n## {section.encode_name}\n\n{_docs(Settings)[section.name]}\n\n")
        parts.append("| setting | type | default | meaning |\n|---|---|---|---|\n")
        parts += [_setting_row(*setting) for setting in _settings(section.type, section.encode_name)]
    parts.append(CONSTANTS)
    for section in msgspec.structs.fields(Settings):
        found = _settings(section.type, section.encode_name, constants=True)
        parts += [f"| {name} | {_default(default)} | {_line(meaning)} |\n" for name, _, default, meaning in found]
    return "".join(parts)


def metrics_page() -> str:
    """Every metric by process."""
    from control.batches.metrics import BatchMetrics
    from control.billing.engine_metrics import EngineCounterMetrics
    from control.eval_runs.night_metrics import NightMetrics
    from control.prefixes.metrics import PrefixMetrics
    from control.releases.rollout.metrics import ReleaseMetrics
    from control.responses.metrics import ResponseMetrics
    from control.slo.metrics import SloMetrics
    from control.webhooks.metrics import WebhookMetrics
    from gateway.limits.metrics import LimitsMetrics
    from gateway.metering.metrics import MeteringMetrics
    from gateway.observability.cascade_metrics import CascadeMetrics
    from gateway.observability.file_metrics import FileMetrics
    from gateway.observability.metrics import GatewayMetrics
    from gateway.shadow.metrics import ShadowMetrics
    from router.config import RouterConfig
    from router.core.dispatcher import Dispatcher
    from router.metrics import RouterMetrics
    from router.policies import registry
    from slipstream.worker_metrics import WorkerMetrics
    from telemetry.metrics import SpanMetrics

    gateway = CollectorRegistry()
    kinds = (GatewayMetrics, CascadeMetrics, FileMetrics, LimitsMetrics, MeteringMetrics, ShadowMetrics, SpanMetrics)
    for kind in kinds:
        kind(gateway)
    worker = CollectorRegistry()
    WorkerMetrics(worker)
    SloMetrics(worker)
    EngineCounterMetrics(worker)
    WebhookMetrics(worker)
    PrefixMetrics(worker)
    ReleaseMetrics(worker)
    NightMetrics(worker)
    BatchMetrics(worker)
    ResponseMetrics(worker)
    config = RouterConfig()
    router = RouterMetrics(Dispatcher(config, registry.create(config.policy))).registry
    SpanMetrics(router)
    parts = [HEAD, METRICS, _table_head("Gateway"), *_metric_rows(gateway)]
    parts += [_table_head("Router"), *_metric_rows(router)]
    parts += [_table_head("Worker"), *_metric_rows(worker)]
    parts += [_table_head("Embedded engine (SGLang's names and meanings)"), *_engine_rows()]
    return "".join(parts)


def errors_page() -> str:
    """Every error code with its status and meaning."""
    from gateway.wire.errors import STATUS_AND_TYPE

    parts = [HEAD, ERRORS]
    for kind in _tree(SlipstreamError):
        status, type_name = STATUS_AND_TYPE[kind.code]
        parts.append(f"| `{kind.code}` | {status} | `{type_name}` | {_line(kind.__doc__ or '')} |\n")
    return "".join(parts)


def _settings(
    annotation: Any, trail: str, *, constants: bool = False, inside: bool = False
) -> Iterator[tuple[str, Any, Any, str]]:
    """(dotted name, type, default, meaning) of every setting below a section. constants: the section's constants
    instead. inside: whether the section itself is a constant."""
    kind, collection = _struct_in(annotation)
    if kind is None:
        return
    from slipstream.settings import INHERITED

    docs = _docs(kind)
    prefix = f"{trail}[]" if collection else trail
    for field in msgspec.structs.fields(kind):
        name, fixed = f"{prefix}.{field.encode_name}", inside or is_fixed(field.type)
        if fixed and not constants:
            continue
        inner, inner_collection = _struct_in(field.type)
        if name in REPEATED:
            if not constants:
                yield name, field.type, (), f"{docs[field.name]} Its settings are those of `{REPEATED[name]}`."
            continue
        if inner is not None and not inner_collection and f"{prefix}.{field.name}" not in INHERITED:
            yield from _settings(field.type, name, constants=constants, inside=fixed)
            continue
        if fixed == constants:
            yield name, field.type, field.default, docs.get(field.name, "")
        if inner is not None and inner_collection:
            yield from _settings(field.type, name, constants=constants, inside=fixed)


def _setting_row(name: str, annotation: Any, default: Any, meaning: str) -> str:
    return f"| `{name}` | {_type_name(annotation)} | {_default(default)} | {_line(meaning)} |\n"


def _default(default: Any) -> str:
    """The default as in a settings file; TOML has no null."""
    if default is msgspec.NODEFAULT:
        return "required"
    if default in ("", None, ()):
        return "unset" if default is None else "empty"
    return f"`{toml.value(default)}`"


def _type_name(annotation: Any) -> str:
    kind = msgspec.inspect.type_info(annotation)
    if isinstance(kind, msgspec.inspect.UnionType):
        parts = [part for part in kind.types if not isinstance(part, msgspec.inspect.NoneType)]
        return " or ".join(_plain(part) for part in parts)
    return _plain(kind)


def _plain(kind: msgspec.inspect.Type) -> str:
    name = {"VarTupleType": "list", "StructType": "section", "StrType": "text"}.get(
        type(kind).__name__, type(kind).__name__.removesuffix("Type").lower()
    )
    if isinstance(kind, msgspec.inspect.LiteralType):
        return " or ".join(f"`{value}`" for value in kind.values)
    if isinstance(kind, msgspec.inspect.EnumType):
        return " or ".join(f"`{member.value}`" for member in kind.cls)
    bounds = [
        f"{sign} {_number(value):,}"
        for sign, value in (
            (">", getattr(kind, "gt", None)),
            ("≥", getattr(kind, "ge", None)),
            ("<", getattr(kind, "lt", None)),
            ("≤", getattr(kind, "le", None)),
        )
        if value is not None
    ]
    return f"{name} {', '.join(bounds)}".strip()


def _number(value: float) -> float:
    """The number without a superfluous `.0`: typing caches equal annotations, so import order decides between them."""
    return int(value) if float(value).is_integer() else value


def _struct_in(annotation: Any) -> tuple[type[msgspec.Struct] | None, bool]:
    """The struct inside an annotation, and whether it is the element of a list."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation, False
    for argument in get_args(annotation):
        found, collection = _struct_in(argument)
        if found is not None:
            return found, collection or get_origin(annotation) in (tuple, list)
    return None, False


def _docs(kind: type) -> dict[str, str]:
    """The docstrings under the fields of a class and its bases, by field name."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        if base is msgspec.Struct:
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError):
            continue
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                value = text.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found[field.target.id] = value.value
    return found


def _table_head(title: str) -> str:
    return f"\n## {title}\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n"


def _metric_rows(registry: CollectorRegistry) -> list[str]:
    return [_metric_row(metric, registry) for metric in sorted(registry.collect(), key=lambda found: found.name)]


def _engine_rows() -> Iterator[str]:
    """The engine's rows, read from its source: the collector shows nothing before a model is loaded."""
    source = (Path(__file__).parents[1] / "engines" / "embedded" / "metrics.py").read_text()
    for kind, name, meaning in re.findall(r'self\._(gauge|counter|histogram)\(\s*"(\w+)",\s*"([^"]+)"', source):
        shown = f"sglang:{name}{'_total' if kind == 'counter' else ''}"
        yield f"| `{shown}` | {kind} | `model_name` | {_line(meaning)} |\n"


def _metric_row(metric: Metric, registry: CollectorRegistry) -> str:
    labels = sorted(_labels_of(metric, registry))
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    shown = ", ".join(f"`{label}`" for label in labels)
    return f"| `{name}` | {metric.type} | {shown} | {_line(metric.documentation)} |\n"


def _labels_of(metric: Metric, registry: CollectorRegistry) -> Iterable[str]:
    collectors = registry._names_to_collectors  # only here are the label names of metrics without samples
    collector = collectors.get(metric.name) or collectors.get(f"{metric.name}_total")
    families = getattr(metric, "_labelnames", ())  # of a metric whose collector has no label names
    return getattr(collector, "_labelnames", None) or families


def _tree(kind: type[SlipstreamError], depth: int = 0) -> Iterator[type[SlipstreamError]]:
    """The kinds of error that clients get: all but the root and the groups below it."""
    children = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    if depth > 1 or not children:
        yield kind
    for child in children:
        yield from _tree(child, depth + 1)


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(folder: str) -> None:
    """Write every page into `folder`."""
    for name, content in pages().items():
        (Path(folder) / name).write_text(content)


if __name__ == "__main__":
    main(sys.argv[1])
