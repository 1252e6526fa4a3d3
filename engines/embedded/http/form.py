"""The one format that a body demands of its output, in OpenAI's `response_format` or SGLang's own fields."""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.errors import InvalidField, UnsupportedField
from engines.embedded.config import GrammarConfig
from engines.embedded.grammar.spec import GrammarSpec, ebnf_spec, object_spec, regex_spec, schema_spec
from engines.embedded.http.bodies import ResponseFormat, SamplingFields

SCHEMA_FIELD = "response_format.json_schema"


def form_of(body: SamplingFields, config: GrammarConfig) -> GrammarSpec | None:
    """The grammar, or None if any text is allowed. Raises InvalidField or UnsupportedField that names the field."""
    forms = _response_format(body.response_format, config)
    if body.json_schema is not None:
        forms.append(schema_spec(_parsed(body.json_schema), "json_schema", config))
    if body.regex is not None:
        forms.append(regex_spec(body.regex, "regex", config))
    if body.ebnf is not None:
        forms.append(ebnf_spec(body.ebnf, "ebnf", config))
    if len(forms) > 1:
        fields = " and ".join(form.field for form in forms)
        raise InvalidField(f"An output has one format, and {fields} each demand one.", param=forms[1].field)
    return forms[0] if forms else None


def _response_format(wanted: ResponseFormat | None, config: GrammarConfig) -> list[GrammarSpec]:
    if wanted is None or wanted.type == "text":
        return []
    if wanted.type == "json_object":
        return [object_spec("response_format")]
    if wanted.type != "json_schema":
        raise UnsupportedField(
            f"response_format.type: {wanted.type!r} is not supported; text, json_object and json_schema are.",
            param="response_format.type",
        )
    if wanted.json_schema is None:
        raise InvalidField("response_format.json_schema is missing.", param=SCHEMA_FIELD)
    schema = wanted.json_schema.schema_
    return [object_spec(SCHEMA_FIELD) if schema is None else schema_spec(schema, SCHEMA_FIELD, config)]


def _parsed(text: str | dict[str, Any]) -> dict[str, Any]:
    """The schema, which SGLang also accepts as JSON text."""
    if isinstance(text, dict):
        return text
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidField(f"json_schema: not a JSON object: {error}", param="json_schema") from None
