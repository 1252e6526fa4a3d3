"""What `/openapi.json` says of requests beside their bodies."""

from __future__ import annotations

import msgspec

from gateway.http.client_family import CLIENTS, NAMED_BY
from gateway.wire.openai.openapi import OPERATIONS, document


def test_whatever_generates_text_takes_the_header_that_names_the_client() -> None:
    paths = msgspec.json.decode(document())["paths"]
    for operation in OPERATIONS:
        parameters = {parameter["name"]: parameter for parameter in paths[operation.path]["post"]["parameters"]}
        told = parameters[NAMED_BY.decode()]
        assert (told["in"], told["required"]) == ("header", False)
        assert told["schema"]["examples"] == list(CLIENTS)
        assert ("model" in parameters) == ("{model}" in operation.path)
