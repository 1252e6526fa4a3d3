"""Parameters that clients know from other APIs, each with what to write here instead. Pure.

The list is closed: a name that only looks like one of ours often means another thing (`top_k`, `top_p`).
"""

from __future__ import annotations

import msgspec

from gateway.wire.openai.schema import ChatRequest, CompletionRequest

NOT_PASSED_ON = "is neither part of this API nor a parameter that this model's engines accept."
CHAT_URL, COMPLETIONS_URL = "POST /v1/chat/completions", "POST /v1/completions"

_SAMPLING = (
    "it belongs to an engine's own API, and this model's engines do not accept it. Leave it out. If the engines know "
    "it, an operator can add it to 'engine_parameters' of their pool."
)
_LENGTH = "write 'max_tokens'."
_SCHEMA = "write 'response_format' with type json_schema."
_CHAT_ONLY = f"it belongs to {CHAT_URL}."
_BOTH = {
    "max_length": _LENGTH,
    "max_new_tokens": _LENGTH,
    "max_output_tokens": _LENGTH,
    "n_predict": _LENGTH,
    "num_predict": _LENGTH,
    "stop_sequences": "write 'stop'.",
    "top_a": _SAMPLING,
    "typical_p": _SAMPLING,
}
_IMAGE = (
    "an image belongs in a message's 'content', as a part such as "
    '{"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}.'
)
_MESSAGES = 'write \'messages\', such as [{"role": "user", "content": "…"}]'
_CHAT = {
    "function_call": "write 'tool_choice'.",
    "functions": "write 'tools'.",
    "guided_json": _SCHEMA,
    "image": _IMAGE,
    "image_url": _IMAGE,
    "images": _IMAGE,
    "input": f"{_MESSAGES}.",
    "json_schema": _SCHEMA,
    "prompt": f"it belongs to {COMPLETIONS_URL}; here {_MESSAGES}.",
    "system": "write a first message with the role system.",
    "thinking": "write 'reasoning_effort'.",
}
_COMPLETION = {
    "function_call": _CHAT_ONLY,
    "functions": f"it belongs to {CHAT_URL}, which calls it 'tools'.",
    "image": f"images belong to {CHAT_URL}.",
    "image_url": f"images belong to {CHAT_URL}.",
    "images": f"images belong to {CHAT_URL}.",
    "input": "write 'prompt'.",
    "messages": f"it belongs to {CHAT_URL}; here write 'prompt'.",
}

WITHOUT_EFFECT = {
    "add_generation_prompt": (b"true",),
    "best_of": (b"1",),
    "chat_template_kwargs": (b"{}",),
    "continue_final_message": (b"false",),
    "echo": (b"false",),
    "include_reasoning": (b"true",),
    "include_stop_str_in_output": (b"false",),
    "length_penalty": (b"1", b"1.0"),
    "min_p": (b"0", b"0.0"),
    "no_stop_trim": (b"false",),
    "repetition_penalty": (b"1", b"1.0"),
    "separate_reasoning": (b"true",),
    "skip_special_tokens": (b"true",),
    "spaces_between_special_tokens": (b"true",),
    "stop_token_ids": (b"[]",),
    "stream_reasoning": (b"true",),
    "top_k": (b"-1", b"0"),
    "typical_p": (b"1", b"1.0"),
    "use_beam_search": (b"false",),
}
"""Parameters of engines, with the values at which they have no effect. Benchmark tools and clients that write all their
fields send them."""


def _only(of: type[msgspec.Struct], other: type[msgspec.Struct]) -> set[str]:
    return set(of.__struct_fields__) - set(other.__struct_fields__)


IN_CHAT = {
    **_BOTH,
    **dict.fromkeys(_only(CompletionRequest, ChatRequest), f"it belongs to {COMPLETIONS_URL}."),
    **_CHAT,
}
"""Advice by the field's name in a body of a chat completion."""
IN_COMPLETION = {
    **_BOTH,
    **dict.fromkeys(_only(ChatRequest, CompletionRequest), _CHAT_ONLY),
    "max_completion_tokens": _LENGTH,
    **_COMPLETION,
}
"""Advice by the field's name in a body of a completion."""
