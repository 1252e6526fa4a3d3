"""Renders a model's chat template as Hugging Face does, in a sandbox with limits (`template_sandbox.py`).

A template is a program of the model's maker, so it may only read its arguments.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2
import msgspec
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from contracts.engine_parameters import TemplateValue
from contracts.errors import ConfigError, InvalidField, UnsupportedField, in_words
from contracts.printable import excerpt
from engines.tokenizer.json_value import JsonBounds, parsed_arguments, require_bounded
from engines.tokenizer.segment_cache import NeedsThread
from engines.tokenizer.template_sandbox import CPU_S, LOOP_CPU_S, PRODUCED, Allowance, TemplateEnvironment, TooCostly

logger = logging.getLogger(__name__)
JsonObject = dict[str, Any]
Check = Callable[[Sequence[JsonObject]], None]
"""A check of messages whose tool-call arguments are parsed; it raises its own errors."""
REFUSAL_CHARACTERS = 300
SOURCE_CHARACTERS = 1 << 17
"""The longest templates of published models have a quarter of this."""
INDENT_CHARACTERS = 16
DATE_CHARACTERS = 100
TOOL_RESULT = "seventeen herons"
"""A text that no template contains by itself."""
ARGUMENTS_DEPTH = 5
"""Lists and objects around the arguments of a call: the messages, the message, its calls, the call, its function."""
_LOOPS_OVER_CONTENT = re.compile(r"""\bfor\s+\w+\s+in\s+\w+(?:\.content|\[['"]content['"]\])""")
_CONTENT_VARIABLE = re.compile(r"\bfor\s+\w+\s+in\s+content\b")


class ChatTemplate:
    """One compiled template with the special token strings that it may use."""

    def __init__(self, source: str, specials: Mapping[str, str], origin: str) -> None:
        """specials: `bos_token` and the like. origin: the file and key, for errors. Raises ConfigError for a template
        that is too long or cannot be compiled."""
        if len(source) > SOURCE_CHARACTERS:
            raise ConfigError(f"{origin} has {len(source):,} characters; the limit is {SOURCE_CHARACTERS:,}")
        environment = TemplateEnvironment(_GenerationBlock)
        self._allowance = environment.allowance
        environment.filters["tojson"] = _json_filter(self._allowance)
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _now
        self.source = source
        self._specials = dict(specials)
        self._takes_parts = bool(_LOOPS_OVER_CONTENT.search(source) or _CONTENT_VARIABLE.search(source))
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(
                f"{origin} does not parse, line {error.lineno}: {_said(error.message or '')}. Correct the template, "
                "or use another file"
            ) from None
        # Python fails in several ways on jinja2's code for deep nesting, long numbers and `break`s outside of loops
        except Exception as error:
            raise ConfigError(
                f"{origin} cannot be compiled: {_said(in_words(error))}. Correct the template, or use another file"
            ) from None
        # jinja2 would copy a chain of two mappings for each rendering, key by key
        self._template.globals = dict(self._template.globals)

    def prepared(
        self, messages: Sequence[JsonObject], bounds: JsonBounds, check: Check | None = None
    ) -> list[JsonObject]:
        """The messages in the template's form, which differs slightly from the wire format.

        Arguments of tool calls are objects, not JSON text. Missing content becomes empty, like in SGLang and vLLM. If
        the template does not read content parts itself, text parts are joined by spaces into one text, like in SGLang,
        and other parts are refused. check: called before the contents change. Raises InvalidField for more values than
        a template may walk through, and UnsupportedField, which names the part, for a part that is not text.
        """
        prepared = list(messages)
        for index, message in enumerate(prepared):
            if message.get("tool_calls"):
                prepared[index] = _with_parsed_arguments(message, index, bounds)
        if check is not None:
            check(prepared)
        # the arguments were text until now, and only their own depth counts
        parsed = msgspec.structs.replace(bounds, max_depth=bounds.max_depth + ARGUMENTS_DEPTH)
        require_bounded(prepared, "messages", parsed)
        for index, message in enumerate(prepared):
            content = message.get("content")
            if content is None:
                prepared[index] = {**message, "content": ""}
            elif not isinstance(content, str) and not self._takes_parts:
                prepared[index] = _with_text(message, index)
        return prepared

    def render(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject] | None,
        variables: Mapping[str, TemplateValue] | None = None,
        *,
        on_loop: bool = False,
    ) -> str:
        """The prompt text, with the assistant's turn opened. variables: the template's own variables, validated by
        `template_variables`. Raises InvalidField if the template refuses or fails, and NeedsThread if it takes too long
        on the event loop.

        A template's own refusal is meant for the client; jinja2's message about a failure is not.
        """
        try:
            return self._rendered(messages, tools, variables, LOOP_CPU_S if on_loop else CPU_S)
        except _Refused as refused:
            # the refusal may quote a message that contains marks of `Escape`
            reason = str(refused)[:REFUSAL_CHARACTERS].encode("utf-8", "replace").decode()
            raise InvalidField(f"The model's chat template refused: {reason}", param="messages") from None
        # a template may fail in any way on a conversation that its author did not foresee
        except Exception as error:
            if on_loop and isinstance(error, TooCostly):
                raise NeedsThread from None
            logger.warning("a chat template failed: %s", in_words(error)[:REFUSAL_CHARACTERS])
            raise InvalidField(
                "This model's chat template fails on these messages: it does not support this order of roles, or one "
                "of their fields. Check them against the model's documentation.",
                param="messages",
            ) from None

    def _rendered(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject] | None,
        variables: Mapping[str, TemplateValue] | None = None,
        cpu_s: float = CPU_S,
    ) -> str:
        self._allowance.begin(cpu_s)
        context = self._template.new_context(
            dict(
                variables or {},
                messages=list(messages),
                tools=list(tools) if tools else None,
                documents=None,
                add_generation_prompt=True,
                **self._specials,
            )
        )
        parts: list[str] = []
        left = PRODUCED
        for part in self._template.root_render_func(context):
            parts.append(part)
            left -= len(part)
            if left < 0:
                raise TooCostly(f"its text has more than {PRODUCED} characters")
        return "".join(parts)

    @property
    def shows_tool_results(self) -> bool:
        """Whether tool results appear in the prompt. False only if the template omits them silently; a template that
        fails on our example may still accept others."""
        call = {"id": "call00000", "type": "function", "function": {"name": "look", "arguments": {}}}
        example: list[JsonObject] = [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call00000", "name": "look", "content": TOOL_RESULT},
        ]
        try:
            return TOOL_RESULT in self._rendered(example, None)
        except Exception:
            return True

    @property
    def takes_later_system(self) -> bool:
        """Whether a system message after the user's appears in the prompt; many templates refuse it there."""
        example: list[JsonObject] = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look."},
            {"role": "system", "content": TOOL_RESULT},
        ]
        try:
            return TOOL_RESULT in self._rendered(example, None)
        except Exception:
            return False


def _said(message: str) -> str:
    return excerpt(message.rstrip("."))


class _Refused(Exception):
    """The template called raise_exception."""


def _refuse(message: str) -> None:
    raise _Refused(message)


def _now(form: str) -> str:
    if len(form) > DATE_CHARACTERS:
        raise ValueError("strftime_now: the format is too long")
    return time.strftime(form)


def _json_filter(allowance: Allowance) -> Callable[..., str]:
    def to_json(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Replaces jinja2's own filter, which escapes for HTML; no model was trained on that."""
        if indent is not None or separators is not None:
            extra = (
                [indent] if isinstance(indent, int) else [len(text) for text in (indent, *(separators or ())) if text]
            )
            if max(extra, default=0) > INDENT_CHARACTERS:
                raise TooCostly(f"it separates JSON values by more than {INDENT_CHARACTERS} characters")
        allowance.spend_value(value)
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    return to_json


def _with_text(message: JsonObject, index: int) -> JsonObject:
    """The message with its content parts joined."""
    content = message["content"]
    for number, part in enumerate(content):
        if part.get("type") != "text":
            field = f"messages[{index}].content[{number}]"
            what = "an image" if part.get("type") == "image_url" else f"of type {part.get('type')!r}"
            raise UnsupportedField(
                f"This model reads text only, and {field} is {what}. Omit it, or use a model that supports it.",
                param=field,
            )
    return {**message, "content": " ".join(part["text"] for part in content)}


def _with_parsed_arguments(message: JsonObject, index: int, bounds: JsonBounds) -> JsonObject:
    field = f"messages[{index}].tool_calls"
    parsed = [_with_parsed_call(call, f"{field}[{at}]", bounds) for at, call in enumerate(message["tool_calls"])]
    return {**message, "tool_calls": parsed}


def _with_parsed_call(call: JsonObject, field: str, bounds: JsonBounds) -> JsonObject:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    arguments = parsed_arguments(function["arguments"], f"{field}.function.arguments", bounds)
    return {**call, "function": {**function, "arguments": arguments}}


class _GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}`, which marks text to train on; serving uses only its content."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
