"""Chats in templates of Gemma's and Phi's form: the engine renders what the gateway counts, and refuses by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from engines.tokenizer.tokenizer import JsonObject, Tokenizer
from tests.engines.embedded.engine_process import TOKEN
from tests.engines.embedded.served import served
from tests.engines.embedded.test_families import GEMMA, PHI4
from tests.engines.embedded.test_lora import family_model

ALTERNATING = (
    "{{ bos_token }}{% set system = messages[0].role == 'system' %}"
    "{% for m in (messages[1:] if system else messages) %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "<turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ messages[0].content ~ '\n\n' if system and loop.first }}"
    "{% if m.content is string %}{{ m.content | trim }}{% else %}"
    "{% for part in m.content %}{{ part.text | trim }}{% endfor %}{% endif %}</turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>model\n{% endif %}"
)
TOOLS_IN_THE_SYSTEM_MESSAGE = (
    "{% for m in messages %}{% if m.role == 'system' and 'tools' in m and m.tools is not none %}"
    "<|{{ m.role }}|>{{ m.content }}<|tool|>{{ m.tools }}<|/tool|><|stop|>"
    "{% else %}<|{{ m.role }}|>{{ m.content }}<|stop|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% else %}{{ eos_token }}{% endif %}"
)
SYSTEM: JsonObject = {"role": "system", "content": "Be brief."}
USER: JsonObject = {"role": "user", "content": " Hello. "}
PARTS: JsonObject = {
    "role": "user",
    "content": [{"type": "text", "text": "The heron"}, {"type": "text", "text": " stands."}],
}


@pytest.mark.parametrize(
    ("family", "shape", "template", "rendered"),
    [
        (
            "gemma3_text",
            GEMMA,
            ALTERNATING,
            ("<turn>user\nBe brief.\n\nHello.</turn>", "<turn>user\nThe heronstands.</turn>"),
        ),
        (
            "phi3",
            PHI4,
            TOOLS_IN_THE_SYSTEM_MESSAGE,
            ("<|system|>Be brief.<|stop|><|user|> Hello. <|stop|>", "<|user|>The heron  stands.<|stop|>"),
        ),
    ],
)
async def test_a_chat_is_rendered_as_it_is_counted(
    tmp_path: Path, family: str, shape: dict[str, Any], template: str, rendered: tuple[str, str]
) -> None:
    folder = family_model(tmp_path / "model", family, **shape)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "bos_token": ""}))
    tokenizer = Tokenizer.load(folder)
    tool: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    async with (
        served(model=str(folder)) as engine,
        openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key=TOKEN, max_retries=0) as client,
    ):
        for messages, text in zip(([SYSTEM, USER], [PARTS]), rendered, strict=True):
            ids = tokenizer.chat_ids(messages)
            assert text in tokenizer.whole_text(ids)
            chat: Any = {"model": "model", "messages": messages, "max_tokens": 2}
            answer = await client.chat.completions.create(**chat)
            assert answer.usage.prompt_tokens == len(ids)
        with pytest.raises(openai.BadRequestError, match="tools: this model's chat template has no tool call format"):
            await client.chat.completions.create(**chat, tools=[tool])
        if family == "gemma3_text":
            with pytest.raises(openai.BadRequestError, match="chat template refused: Roles must alternate"):
                await client.chat.completions.create(**chat | {"messages": [USER, USER]})
