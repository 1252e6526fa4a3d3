"""A prompt has the same token ids through the gateway as without it: in each format, for each driver.

Bare ids come from the model's own template and vocabulary, by Jinja and `tokenizers` alone. The embedded engine's ids
are those that it decodes from its body; of the other drivers the body itself is rendered. A conversation is written
once and sent in the shape of each format.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import jinja2
import msgspec
import pytest
import tokenizers

from contracts.generation import ChatPrompt
from engines.drivers import registry as drivers
from engines.embedded.config import GrammarConfig
from engines.embedded.http.bodies import ChatBody, CompletionBody, decode_body
from engines.embedded.http.decode import Decoder
from engines.embedded.sampling_defaults import SamplingDefaults
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.anthropic.format import MessagesFormat
from gateway.wire.config import RequestConfig
from gateway.wire.openai.format import ChatFormat, CompletionFormat
from gateway.wire.prepared import Prepared, Target
from gateway.wire.responses.format import ResponsesFormat
from tests.gateway.wire.openai.preparing import CALLER, MODELS, target

FOLDER = MODELS / "slipstream-chat"
OURS = Tokenizer.load(FOLDER)
CONTEXT_TOKENS = 4_608
DRIVERS = ("embedded", "sglang", "vllm", "tensorrt_llm", "openai")
LETTERS = "abcdefgh XYZ 0123 \n\t{}[]\"'\\/.,:;éßñжλ日本語한국🙂\u00a0\u0301"
CONFIG = RequestConfig()
Json = dict[str, Any]


class Bare:
    """The model's own files, without ours."""

    def __init__(self) -> None:
        settings = json.loads((FOLDER / "tokenizer_config.json").read_text())
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        self._template = environment.from_string(settings["chat_template"])
        self._vocabulary = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))

    def chat(self, messages: Sequence[Json], tools: Sequence[Json] | None) -> list[int]:
        """Ids of a conversation. Arguments of calls are JSON text, as on the wire."""
        shown = []
        for message in messages:
            calls = [
                {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
                for call in message.get("tool_calls") or ()
            ]
            shown.append({**message, **({"tool_calls": calls} if calls else {})})
        text = self._template.render(messages=shown, tools=tools, add_generation_prompt=True)
        return list(self._vocabulary.encode(text, add_special_tokens=False).ids)

    def text(self, text: str) -> list[int]:
        """Ids of a text."""
        return list(self._vocabulary.encode(text).ids)


class Engine(Decoder):
    """The embedded engine's, which compiles no grammar: it changes no prompt."""

    async def _guide(self, *_: Any) -> Any:
        return None, 0.0


def engine() -> Engine:
    service: Any = SimpleNamespace(
        name="m",
        pooling=None,
        tokenizer=OURS,
        context_tokens=CONTEXT_TOKENS,
        model=SimpleNamespace(vocab_size=100_000),
        config=SimpleNamespace(grammar=GrammarConfig(), max_choices=8),
        sampling_defaults=SamplingDefaults(),
    )
    return Engine(service)


class Conversation:
    """A random one: perhaps instructions and tools, turns, calls with results, and a last message of the user."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)

        def text(most: int = 40) -> str:
            # clients' texts are never empty, and formats differ in whether they keep a text of spaces alone
            return draw.choice("aé日") + "".join(draw.choices(LETTERS, k=draw.randrange(most)))

        self.system = text() if draw.random() < 0.6 else None
        self.has_tools = draw.random() < 0.6
        self.function = {
            "name": "look",
            "description": text(),
            "parameters": {"type": "object", "properties": {"at": {"type": "string", "description": text()}}},
        }
        self.turns: list[tuple[str, str, str]] = []
        """What the user and the assistant say; the third: of a call's result, or empty."""
        for _ in range(draw.randrange(4)):
            result = text() if self.has_tools and draw.random() < 0.5 else ""
            self.turns.append((text(), text(), result))
        self.last = text(200)

    def chat(self) -> Json:
        """In OpenAI's chat."""
        messages: list[Json] = [] if self.system is None else [{"role": "system", "content": self.system}]
        for number, (asked, said, result) in enumerate(self.turns):
            messages.append({"role": "user", "content": asked})
            if result:
                call = {"name": "look", "arguments": json.dumps({"at": said}, ensure_ascii=False)}
                calls = [{"id": f"c{number}", "type": "function", "function": call}]
                messages.append({"role": "assistant", "content": None, "tool_calls": calls})
                messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
            messages.append({"role": "assistant", "content": said})
        messages.append({"role": "user", "content": self.last})
        tools = {"tools": [{"type": "function", "function": self.function}]} if self.has_tools else {}
        return {"model": "m", "messages": messages, "max_tokens": 1, "stream": True, **tools}

    def messages(self) -> Json:
        """In Anthropic's Messages."""
        turns: list[Json] = []
        for number, (asked, said, result) in enumerate(self.turns):
            turns.append({"role": "user", "content": asked})
            if result:
                use = {"type": "tool_use", "id": f"c{number}", "name": "look", "input": {"at": said}}
                turns.append({"role": "assistant", "content": [use]})
                told = {"type": "tool_result", "tool_use_id": f"c{number}", "content": result}
                turns.append({"role": "user", "content": [told]})
            turns.append({"role": "assistant", "content": said})
        turns.append({"role": "user", "content": self.last})
        tool = {**self.function, "input_schema": self.function["parameters"]}
        del tool["parameters"]
        system = {} if self.system is None else {"system": self.system}
        tools = {"tools": [tool]} if self.has_tools else {}
        return {"model": "m", "messages": turns, "max_tokens": 1, "stream": True, **system, **tools}

    def responses(self) -> Json:
        """In OpenAI's Responses."""
        items: list[Json] = []
        for number, (asked, said, result) in enumerate(self.turns):
            items.append({"role": "user", "content": asked})
            if result:
                arguments = json.dumps({"at": said}, ensure_ascii=False)
                call = {"type": "function_call", "call_id": f"c{number}", "name": "look", "arguments": arguments}
                items += [call, {"type": "function_call_output", "call_id": f"c{number}", "output": result}]
            items.append({"role": "assistant", "content": [{"type": "output_text", "text": said, "annotations": []}]})
        items.append({"role": "user", "content": self.last})
        system = {} if self.system is None else {"instructions": self.system}
        tools = {"tools": [{"type": "function", **self.function}]} if self.has_tools else {}
        return {"model": "m", "input": items, "max_output_tokens": 1, "stream": True, **system, **tools}


FORMATS = {
    "chat": (ChatFormat(CONFIG), Conversation.chat),
    "messages": (MessagesFormat(CONFIG), Conversation.messages),
    "responses": (ResponsesFormat(CONFIG), Conversation.responses),
}


async def prepared(wire_format: Any, body: Json, where: Target) -> Prepared:
    made: Prepared = await wire_format.prepare(
        wire_format.decode(msgspec.json.encode(body)), "req_1", CALLER, "salt", where
    )
    return made


def body_of(made: Prepared, driver: str) -> bytes:
    return drivers.get(driver).generate(made.generation, "m").body


async def conversations_are_neutral(seeds: Sequence[int]) -> None:
    bare, decoder = Bare(), engine()
    for seed in seeds:
        conversation = Conversation(seed)
        chat = conversation.chat()
        wanted = bare.chat(chat["messages"], chat.get("tools"))
        for name, (wire_format, write) in FORMATS.items():
            for driver in DRIVERS:
                where = target(OURS, driver, context_tokens=CONTEXT_TOKENS)
                made = await prepared(wire_format, write(conversation), where)
                assert made.prompt_tokens == len(wanted), (seed, name, driver)
                assert isinstance(made.generation.prompt, ChatPrompt)
                body = body_of(made, driver)
                if driver == "embedded":
                    request, _ = await decoder.chat(decode_body(body, ChatBody))
                    [ids] = request.prompts
                    assert list(ids) == wanted, (seed, name)
                else:
                    sent = msgspec.json.decode(body)
                    assert bare.chat(sent["messages"], sent.get("tools")) == wanted, (seed, name, driver)


async def texts_are_neutral(seeds: Sequence[int]) -> None:
    bare, decoder, wire_format = Bare(), engine(), CompletionFormat(CONFIG)
    for seed in seeds:
        text = Conversation(seed).last
        wanted = bare.text(text)
        for driver in ("embedded", "sglang", "vllm", "openai"):
            where = target(OURS, driver, tier="autocomplete", context_tokens=CONTEXT_TOKENS)
            made = await prepared(wire_format, {"model": "m", "prompt": text, "max_tokens": 1, "stream": True}, where)
            assert made.prompt_tokens == len(wanted), (seed, driver)
            body = body_of(made, driver)
            if driver == "embedded":
                [ids] = (await decoder.completion(decode_body(body, CompletionBody))).prompts
                assert list(ids) == wanted, seed
            else:
                sent = msgspec.json.decode(body)["prompt"]
                assert (bare.text(sent) if isinstance(sent, str) else sent) == wanted, (seed, driver)


async def test_a_prompt_has_the_ids_that_it_has_without_the_gateway() -> None:
    await conversations_are_neutral(range(6))
    await texts_are_neutral(range(6))


@pytest.mark.nightly
async def test_a_thousand_prompts_have_the_ids_that_they_have_without_the_gateway() -> None:
    seeds = range(1_000, 2_000)
    await conversations_are_neutral(seeds)
    await texts_are_neutral(seeds)
