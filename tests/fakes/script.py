"""What the fake engine does with a request, settable as a default or inside a prompt."""

from __future__ import annotations

import msgspec

MARK = b"mock:"
"""In a prompt or message, `mock:` followed by a JSON object overrides the default script for that request."""


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request's course. Times in seconds; token counts are per choice."""

    ttft_s: float = 0.0
    text_gap_s: float = 0.0
    """Between the role event and the first token."""
    inter_token_s: float = 0.0
    tokens: int = 16
    """Cut to the request's max_tokens, which then is the finish reason."""
    texts: tuple[str, ...] = ()
    """What the first tokens say instead of ` t0 t1 t2…`."""
    obeys: bool = False
    """A token comes first, the text that the request's grammar forces an output to begin with, where it has one."""
    tool: str = ""
    """A chat calls this function: its tokens are the call's arguments and no text."""
    file: str = ""
    """A completion says what stands behind its prompt in this text, three characters a token, and ends with it, as
    a greedy model does that knows the file by heart."""
    prompt_tokens: int = 0
    """0: estimated from the prompt's length."""
    cached_tokens: int = 0
    drafts: int = 0
    """Tokens guessed ahead, told at the end where the request asks for it; 0: nothing is told."""
    accepted_drafts: int = 0
    engine_queue_ms: float = -1.0
    """Waited in the engine's queue, told at the end as the embedded engine does; -1: it tells nothing of its time."""
    engine_prefill_ms: float = 0.0
    engine_grammar_ms: float = 0.0
    retractions: int = 0
    split: str = "event"
    """How the answer is written: one `event` each, one `byte` each, or everything `joined` at the end."""
    role_first: bool = True
    """Chat begins with an event that has a role and no text, as SGLang's does."""
    usage: bool = True
    """False: no usage at all, whatever the request asks."""
    usage_stops_after: int = -1
    """Tell a running usage with so many tokens of a choice and never again, not even at the end; -1: as asked."""
    usage_unreadable_after: int = -1
    """From this token on a running usage holds no numbers; -1: never."""
    own_ids: bool = False
    """With several choices each has an id of its own and cannot be aborted by ours, as in SGLang."""
    status: int = 200
    """Anything else: answer with this status and `message` instead of a stream."""
    message: str = "scripted refusal"
    retry_after: str = ""
    """The header of that answer; empty: it has none."""
    hang: bool = False
    """Take the request and say nothing."""
    hang_after_tokens: int = -1
    """Fall silent after so many; -1: never."""
    die_after_tokens: int = -1
    """Close the socket after so many, 0 before the first byte of the answer; -1: never."""
    error_after_tokens: int = -1
    """Send an error event instead of going on; -1: never."""
    abort_after_tokens: int = -1
    """End the generation by itself instead of going on, as an engine that shuts down; -1: never."""
    encoding: str = ""
    """Of vectors, whatever the request wants: float or base64; empty: as requested."""
    dropped_vectors: int = 0
    """An embedding request gets so many vectors too few."""
    flat: bool = False
    """Scores as SGLang writes them: an array, with the tokens of each pair, and no usage."""
    error_code: int = 500
    """What that event says it is."""


def of_request(default: Script, body: bytes) -> Script:
    """The default with what the request's text overrides."""
    if default.file:
        default = _by_heart(default, body)
    start = body.find(MARK)
    if start < 0:
        return default
    for text in _strings(msgspec.json.decode(body)):
        _, found, rest = text.partition(MARK.decode())
        if found:
            changes = msgspec.json.decode(_object(rest))
            return msgspec.convert({**msgspec.structs.asdict(default), **changes}, Script)
    return default


def _by_heart(script: Script, body: bytes) -> Script:
    prompt = msgspec.json.decode(body).get("prompt")
    if not isinstance(prompt, str) or not script.file.startswith(prompt):
        return script
    rest = script.file[len(prompt) :]
    texts = tuple(rest[start : start + 3] for start in range(0, len(rest), 3))
    return msgspec.structs.replace(script, texts=texts, tokens=len(texts))


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for inner in value for text in _strings(inner)] if isinstance(value, list) else []


def _object(text: str) -> str:
    """The JSON object at the start; a script holds no nested objects."""
    return text[: text.index("}") + 1]
