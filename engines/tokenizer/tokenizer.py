"""Converts text to token ids and back for one model, without torch: the gateway computes the engine's own counts.

User text never becomes a control token here: `<|end|>` typed by a user is encoded as those characters.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from contracts.engine_parameters import TemplateValue
from contracts.errors import ConfigError, ContextTooLong, InvalidField, SpecialToken, UnsupportedField
from contracts.printable import excerpt
from engines.tokenizer.control import ControlToken, ControlTokens, gives_text, is_control
from engines.tokenizer.escape import Escape
from engines.tokenizer.fill import FillTemplate, fill_template
from engines.tokenizer.folder import TokenizerFolder
from engines.tokenizer.healing import Opening, TokenBeginnings, TokenIndex, healed, spells_any_text
from engines.tokenizer.json_value import JsonBounds, require_bounded, separators, texts
from engines.tokenizer.longest import longest_token_bytes
from engines.tokenizer.segment_cache import LoopAllowance, NeedsThread, SegmentCache, cuts_words, parts
from engines.tokenizer.sound import require_sound
from engines.tokenizer.template import ChatTemplate, Check
from engines.tokenizer.text_stream import BytesTextStream, TextStream, WindowTextStream
from engines.tokenizer.token_bytes import token_bytes

JsonObject = dict[str, Any]
CACHED_CHARACTERS = 2_048
"""A shorter prompt is encoded whole, because looking up its segments would take longer."""
LOCAL = frozenset({"ByteLevel", "Digits", "Punctuation", "Split", "Whitespace", "WhitespaceSplit"})
"""Types of pre-tokenizers that treat the beginning of a segment like that of a whole prompt."""
FEW, ALONE_CHARACTERS = 16, 4_096
"""Number of texts, and their total length, up to which they are encoded one by one."""
PIECES = 1_000
"""Most parts that are encoded in one call, if a text is split into many."""
SLICE_CHARACTERS = 32_768
WHOLE_CHARACTERS = 131_072
"""Length up to which a text is encoded whole: with a token for each character, it takes some ten megabytes."""
CUT_TOKENS = 128
"""Upper bound of the ids that a cut through a text adds, in the last word before it and the first word after it."""
LOOP_SEPARATORS = 1_000
"""Most commas and brackets in the arguments of tool calls that are parsed on the event loop."""
LOOP_MARKS = 256
"""Most characters that may begin or end control strings in a conversation that is searched on the event loop."""
_COSTLY = re.compile(r"\d{400}|\\u00")
"""Numbers whose digits take long to convert, and escapes that may hide a control string."""
LONGEST_RUN = 3
"""Longest run of characters that a vocabulary's pattern groups from any start: digits, in cl100k and Llama 3. A cut
inside a run shifts all groups after it."""
BYTE = re.compile("<0x([0-9A-F]{2})>")
"""The token of a byte in a vocabulary with byte fallback."""
NAMED_SPECIALS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Tokenizer:
    """The tokenizer of one model folder. Safe to use from several threads.

    Methods with a `limit_tokens` raise ContextTooLong for a prompt that has more tokens; if its bytes alone cannot fit,
    they raise it before encoding. Encoding does not hold the interpreter lock. Copying the ids into a list does, so no
    more ids than the limit are copied.
    """

    def __init__(self, folder: TokenizerFolder, bounds: JsonBounds | None = None) -> None:
        """Callers use `load`. bounds: limits on a conversation's JSON; None for the defaults. Raises ConfigError if the
        folder's files do not define a tokenizer."""
        added: list[JsonObject] = folder.definition.get("added_tokens") or []
        self._parsing = _backend(folder, folder.definition)
        self._plain = _backend(folder, _with_marked_controls(folder.definition))
        self._plain.encode_special_tokens = True
        self._control = ControlTokens(added)
        self.bounds = bounds or JsonBounds()
        """Limits on the JSON of a conversation."""
        self._has_loose_controls = self._parsing.normalizer is not None and any(
            token.get("normalized") for token in added if is_control(token)
        )
        self._segments = SegmentCache()
        self._encodes_segments = _is_local(folder.definition)
        self._encodes_parts = self._encodes_segments and cuts_words(
            self._plain.pre_tokenizer, added, self._plain.normalizer
        )
        self.leading_ids, self.trailing_ids = _frame(self._parsing)
        """Ids before every prompt, such as a begin-of-text token, and ids after a text to be embedded."""
        self.fill: FillTemplate | None = fill_template(folder, self._control)
        """The layout of a gap; None if this model cannot fill gaps."""
        specials = {name: text for name in NAMED_SPECIALS if (text := folder.special(name)) is not None}
        self._chat_template = _template(folder, folder.chat_template, specials)
        self._tool_template = _template(folder, folder.tool_template, specials)
        self._token_bytes = token_bytes(folder.definition, self._parsing)
        self._has_bytes = bool(folder.definition["model"].get("byte_fallback"))

        vocabulary: dict[str, int] = self._parsing.get_vocab(with_added_tokens=True)
        if not vocabulary:
            raise ConfigError(f"{folder.tokenizer_origin}: the vocabulary is empty")
        self.vocabulary_size: int = max(vocabulary.values()) + 1
        """Upper bound of all ids, exclusive."""
        self.longest_token_bytes = longest_token_bytes(folder.definition, vocabulary)
        """The most bytes of text that one id can represent; None if there is no bound."""
        self.control_ids = self._control.ids
        self.silent_ids = frozenset(token["id"] for token in added if not gives_text(token))
        """Ids that produce no text when the model generates them."""
        self.calls_in_parallel: bool = folder.config.get("parallel_tool_calls") is not False
        """Whether a response may contain several tool calls by default; false with `"parallel_tool_calls": false` in
        `tokenizer_config.json`, for a model that never stops calling tools."""
        self.end_ids = folder.end_ids | _ids(self._parsing, folder.special("eos_token"))
        """Ids that end a generation."""

    @classmethod
    def load(cls, folder: Path | str, bounds: JsonBounds | None = None) -> Tokenizer:
        """Read a Hugging Face model folder. Raises ConfigError, which names the file at fault."""
        return cls(TokenizerFolder.read(Path(folder)), bounds)

    @property
    def has_chat_template(self) -> bool:
        """Whether the model has a chat template, so that `chat_ids` works."""
        return self._chat_template is not None

    @property
    def tool_template_source(self) -> str | None:
        """The chat template that renders tools; None if the model has no chat template."""
        template = self._tool_template or self._chat_template
        return None if template is None else template.source

    @functools.cached_property
    def shows_tool_results(self) -> bool:
        """`ChatTemplate.shows_tool_results` of the template for conversations without tools."""
        return self._chat_template is None or self._chat_template.shows_tool_results

    @functools.cached_property
    def takes_later_system(self) -> bool:
        """`ChatTemplate.takes_later_system` of the template for conversations without tools."""
        return self._chat_template is None or self._chat_template.takes_later_system

    def encode(
        self, text: str, limit_tokens: int | None = None, tenant: str = "", allowance: LoopAllowance | None = None
    ) -> list[int]:
        """The ids of a prompt as the engine would encode it (with the model's begin-of-text token, if it has one),
        except that control strings in the prompt stay text. tenant, allowance: see `plain_ids`."""
        return [*self.leading_ids, *self.plain_ids(text, limit_tokens, tenant, allowance)]

    def count(self, text: str) -> int:
        """Number of ids that `encode` returns."""
        return len(self.encode(text))

    def plain_ids(
        self, text: str, limit_tokens: int | None = None, tenant: str = "", allowance: LoopAllowance | None = None
    ) -> list[int]:
        """The ids of a part of a prompt, without leading ids and with control strings as text. tenant: the organization
        whose cached segments are used; empty for no cache. allowance: see `chat_ids`."""
        if allowance is not None and self._has_loose_controls:
            raise NeedsThread
        if tenant and self._encodes_parts and len(text) >= CACHED_CHARACTERS:
            with contextlib.suppress(ContextTooLong, _SpelledControl):  # only the whole text gives its count and ids
                return self._encode_parts(text, limit_tokens, tenant, allowance)
        if allowance is not None:
            allowance.spend([text])
        return self._encode_plain(text, limit_tokens)

    def _encode_parts(
        self, text: str, limit_tokens: int | None, tenant: str, allowance: LoopAllowance | None
    ) -> list[int]:
        """Encode text without encoding the parts again that the tenant has sent before."""
        self.require_fitting(require_sound(text), limit_tokens)

        def encode(new: list[str]) -> list[list[int]]:
            if allowance is not None:
                allowance.spend(new)
            encodings = self._encodings(new)
            _require_room(sum(map(len, encodings)), limit_tokens)
            return [self._without_controls(encoding.ids) for encoding in encodings]

        ids: list[int] = []
        *before, last = parts(text)
        if allowance is not None:
            allowance.spend([last])
        # one call for many parts, because each call gives the interpreter lock away and waits for it again
        for batch in _batches(before):
            for found in self._segments.all_ids(tenant, batch, encode):
                ids.extend(found)
            _require_room(len(ids), limit_tokens)
        return ids + self._without_controls(self._encode(self._plain, last, limit_tokens, already=len(ids)))

    def _encodings(self, texts: list[str]) -> list[Any]:
        """Encode texts, few of them one by one: several at once wait for the process's pool of threads, and so for the
        large prompts of others."""
        if len(texts) > FEW or sum(map(len, texts)) > ALONE_CHARACTERS:
            return list(self._plain.encode_batch_fast(texts, add_special_tokens=False))
        return [self._plain.encode_batch_fast([text], add_special_tokens=False)[0] for text in texts]

    def _without_controls(self, ids: list[int]) -> list[int]:
        """The ids of a part. Raises _SpelledControl if one is a control token's: `_encode_plain` cuts the whole text at
        all its control strings then."""
        if not self.control_ids.isdisjoint(ids):
            raise _SpelledControl
        return ids

    def plain_counts(self, texts: Sequence[str]) -> list[int]:
        """Number of ids of each text alone; joined, the texts have about as many, usually fewer."""
        counts: list[int] = []
        for first in range(0, len(texts), PIECES):
            counts += [len(encoding) for encoding in self._encodings(list(texts[first : first + PIECES]))]
        return counts

    def least_tokens(self, size_bytes: int) -> int:
        """The fewest ids that a text of this many bytes can have; 0 if there is no bound."""
        return 0 if self.longest_token_bytes is None else -(-size_bytes // self.longest_token_bytes)

    def require_known(self, ids: Sequence[int], param: str) -> None:
        """Raise InvalidField for an id outside of the vocabulary."""
        if max(ids, default=0) >= self.vocabulary_size:
            raise InvalidField(
                f"Token id {max(ids)} is outside this model's vocabulary of {self.vocabulary_size}.", param=param
            )

    def require_fitting(self, size_bytes: int, limit_tokens: int | None, already: int = 0) -> None:
        """Raise ContextTooLong if no text of this many bytes can fit after `already` ids."""
        _require_room(already + self.least_tokens(size_bytes), limit_tokens, size_bytes)

    def chat_ids(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject] | None = None,
        limit_tokens: int | None = None,
        check: Check | None = None,
        variables: Mapping[str, TemplateValue] | None = None,
        tenant: str = "",
        allowance: LoopAllowance | None = None,
    ) -> Sequence[int]:
        """The ids of a conversation with the assistant's turn opened. check: see `ChatTemplate.prepared`. variables:
        see `ChatTemplate.render`. tenant: the organization whose cached segments are used; empty for no cache.
        allowance: for a call on the event loop; None in a thread. Raises NeedsThread above it, and for prompts that
        the cache does not serve.

        The ids are equal to Hugging Face's `apply_chat_template(messages, tools, add_generation_prompt=True)` unless
        user text contains a control string, which stays text here. Raises UnsupportedField if the model has no chat
        template, and InvalidField if the template refuses the messages.
        """
        template = self._tool_template if tools and self._tool_template is not None else self._chat_template
        if template is None:
            raise UnsupportedField("This model has no chat template; use /v1/completions.", param="messages")
        if allowance is not None and (not self._encodes_segments or self._takes_long(messages, tools)):
            raise NeedsThread
        require_bounded(tools, "tools", self.bounds)
        # before escaping, because JSON text can spell a control string in ways that only parsing reveals
        messages = template.prepared(messages, self.bounds, check)
        escape = Escape(self._control, messages, tools)
        if not escape.needed and not self._has_loose_controls:
            rendered = template.render(messages, tools, variables, on_loop=allowance is not None)
            if tenant and self._encodes_segments and len(rendered) >= CACHED_CHARACTERS:
                with contextlib.suppress(ContextTooLong):  # the error must report the whole prompt's count
                    return self._encode_segments(rendered, limit_tokens, tenant, allowance)
            if allowance is not None:
                allowance.spend([rendered])
            return self._encode(self._parsing, rendered, limit_tokens)
        if allowance is not None:
            raise NeedsThread
        if escape.needed:
            escape.replace()
        rendered = template.render(escape.messages, escape.tools, variables)
        ids: list[int] = []
        for part in self._control.split(rendered):
            if isinstance(part, ControlToken):
                ids.append(part.id)
            elif part:
                ids.extend(self._encode_plain(escape.restore(part), limit_tokens, already=len(ids)))
        return ids

    def _takes_long(self, messages: Sequence[JsonObject], tools: Sequence[JsonObject] | None) -> bool:
        """Whether the search for control strings may take milliseconds, or the parsing of tool calls' arguments."""
        if self._has_loose_controls or self._control.marks("".join(texts((messages, tools)))) > LOOP_MARKS:
            return True
        calls = [message["tool_calls"] for message in messages if message.get("tool_calls")]
        written = texts(calls) if calls else ()
        return sum(map(separators, written)) > LOOP_SEPARATORS or any(map(_COSTLY.search, written))

    def _encode_segments(
        self, rendered: str, limit_tokens: int | None, tenant: str, allowance: LoopAllowance | None
    ) -> Sequence[int]:
        """Encode text with control tokens, without encoding segments again that the tenant has sent before."""
        self.require_fitting(require_sound(rendered), limit_tokens)

        def encode(new: list[str]) -> Iterator[list[int]]:
            if allowance is not None:
                allowance.spend(new)
            encoded_tokens = 0
            for text in new:
                found = self._encode_plain(text, limit_tokens, already=encoded_tokens)
                encoded_tokens += len(found)
                yield found

        pieces = [part for part in self._control.split(rendered) if part]
        segments = iter(
            self._segments.all_ids(tenant, [part for part in pieces if not isinstance(part, ControlToken)], encode)
        )
        ids = array("I")
        for part in pieces:
            if isinstance(part, ControlToken):
                ids.append(part.id)
            else:
                ids.extend(next(segments))
        _require_room(len(ids), limit_tokens)
        return ids if allowance is not None else ids.tolist()

    def fill_ids(self, prefix: str, suffix: str, limit_tokens: int | None = None) -> list[int]:
        """The ids of a fill-in-the-middle prompt, in the model's training layout; the completion continues where the
        prefix ends. Raises UnsupportedField if the model has no tokens for it."""
        if self.fill is None:
            raise UnsupportedField(
                "This model cannot fill a gap: it has no fill-in-the-middle tokens. Omit `suffix`.", param="suffix"
            )
        self.require_fitting(require_sound(prefix) + require_sound(suffix), limit_tokens)
        return self.fill.fill(self.leading_ids, prefix, suffix, lambda text: self._encode_plain(text, limit_tokens))

    @functools.cached_property
    def heals(self) -> bool:
        """Whether `healed` and `opening` work, which need a pre-tokenizer's pattern and tokens that spell any text."""
        return self._plain.pre_tokenizer is not None and spells_any_text(
            text for id_, text in (self._token_bytes or {}).items() if id_ not in self.control_ids
        )

    def healed(self, prefix: str) -> int:
        """Start of the part of a prompt that is better generated again (`engines/tokenizer/healing.py`); the prompt's
        length if there is none or this vocabulary does not support it."""
        return healed(prefix, self._plain.pre_tokenizer) if self.heals else len(prefix)

    def healed_tokens(self, prefix: str) -> int:
        """Like `healed`, but only the longest end of the piece, in whole tokens, with which a longer token begins.
        There are only as many such texts as beginnings of tokens, and after any other text nothing needs healing."""
        cut = self.healed(prefix)
        if cut == len(prefix):
            return cut
        tokens = [self.token_bytes(id_) for id_ in self._encode_plain(prefix[cut:], None)]
        if b"".join(tokens) != prefix[cut:].encode():
            return len(prefix)  # the vocabulary spells this text with other bytes
        return len(prefix) - len(self._beginnings.longest_end(tokens).decode())

    def begins_tokens(self, text: str) -> bool:
        """Whether longer tokens begin with the text, like with every end that `healed_tokens` finds."""
        return bool(text) and self._beginnings.longest_end([text.encode()]) == text.encode()

    def may_begin_control(self, text: str) -> bool:
        """Whether a control token's text may begin in the text."""
        return self._control.may_begin_in(text)

    def opening(self, text: str) -> Opening:
        """An opening that makes an output begin with a non-empty text, in any tokens. Raises UnsupportedField if the
        vocabulary does not support it."""
        require_sound(text)
        if not self.heals:
            raise UnsupportedField(
                "begins_with needs a byte-level vocabulary with a token for each byte; this model has none. Omit it.",
                param="begins_with",
            )
        return Opening(text, self._token_index)

    @functools.cached_property
    def _token_index(self) -> TokenIndex:
        return TokenIndex(self._token_bytes or {}, self.control_ids)

    @functools.cached_property
    def _beginnings(self) -> TokenBeginnings:
        texts = (self._token_bytes or {}).items()
        return TokenBeginnings(text for id_, text in texts if id_ not in self.control_ids)

    def may_spell_control(self, value: Any) -> bool:
        """Whether `special_in` could find anything in the texts of a JSON value, or in several of them joined."""
        return self._has_loose_controls or self._control.possible(texts(value))

    def special_in(self, text: str) -> str | None:
        """The first control string in the text, or None. For engines that cannot distinguish it from the real token."""
        control = self._control.find(text)
        if control is None and self._has_loose_controls:
            # encoded, because the normalizer alone would hold the interpreter lock for seconds
            ids = self._encode(self._parsing, text, None)
            hidden = next((id_ for id_ in ids if id_ in self.control_ids), None)
            control = None if hidden is None else str(self._parsing.id_to_token(hidden))
        return control

    def decode(self, ids: Sequence[int]) -> str:
        """The text of generated ids, without control tokens except tags that the caller needs (`gives_text`)."""
        return str(self._parsing.decode([id_ for id_ in ids if id_ not in self.silent_ids]))

    def token_text(self, id_: int) -> str:
        """The text of one token after other text, including control tokens; for log probabilities."""
        before, length = self._before
        return str(self._parsing.decode([*before, id_], skip_special_tokens=False))[length:]

    @functools.cached_property
    def _before(self) -> tuple[list[int], int]:
        """Ids of a text and its length, because some decoders remove the space before a text's first word."""
        ids = self._encode(self._plain, "a", None)
        return ids, len(str(self._parsing.decode(ids, skip_special_tokens=False)))

    def whole_text(self, ids: Sequence[int]) -> str:
        """The text of ids, including control tokens."""
        # `decode` holds the interpreter lock throughout; a batch does not
        return str(self._parsing.decode_batch([ids], skip_special_tokens=False)[0])

    def token_bytes(self, id_: int) -> bytes:
        """The bytes of one token alone, which need not be whole characters; for log probabilities."""
        if self._token_bytes is not None and id_ in self._token_bytes:
            return self._token_bytes[id_]
        byte = BYTE.fullmatch(self._parsing.id_to_token(id_) or "") if self._has_bytes else None
        return self.token_text(id_).encode() if byte is None else bytes.fromhex(byte[1])

    def text_stream(self) -> TextStream:
        """A decoder for one choice's ids as they are generated."""
        if self._token_bytes is not None:
            return BytesTextStream(self._token_bytes)
        return WindowTextStream(self.decode)

    def _encode_plain(self, text: str, limit_tokens: int | None, already: int = 0) -> list[int]:
        """already: number of ids before these."""
        ids = self._encode(self._plain, text, limit_tokens, already)
        if self.control_ids.isdisjoint(ids):
            return ids
        # Unigram and WordLevel vocabularies have their control strings as ordinary tokens, so each string is cut in two
        cuts = [0, *(start + 1 for start, _ in self._control.spans(text)), len(text)]
        parts = [text[start:end] for start, end in itertools.pairwise(cuts)]
        ids = []
        for first in range(0, len(parts), PIECES):
            encodings = self._plain.encode_batch_fast(parts[first : first + PIECES], add_special_tokens=False)
            for encoding in encodings:
                _require_room(already + len(ids) + len(encoding), limit_tokens)
                ids.extend(encoding.ids)
        if not self.control_ids.isdisjoint(ids):
            raise SpecialToken(f"The text holds the control token {self.special_in(text)!r} of this model; remove it.")
        return ids

    def _encode(self, backend: Any, text: str, limit_tokens: int | None, already: int = 0) -> list[int]:
        size_bytes = require_sound(text)
        self.require_fitting(size_bytes, limit_tokens, already)
        # if text may vanish, a slice's count does not bound the whole text's
        if limit_tokens is not None and self.longest_token_bytes is not None:
            self._require_few(backend, text, size_bytes, limit_tokens, already)
        # `encode` holds the interpreter lock throughout; a batch, even of one text, does not
        encoding = backend.encode_batch_fast([text], add_special_tokens=False)[0]
        _require_room(already + len(encoding), limit_tokens)
        ids: list[int] = encoding.ids
        return ids

    def _require_few(self, backend: Any, text: str, size_bytes: int, limit_tokens: int, already: int) -> None:
        """Raise ContextTooLong if the text's slices have so many ids that the whole text cannot fit.

        Encoding millions of ids at once takes hundreds of megabytes, and all threads of the process wait while the
        kernel allocates and frees them; slices reuse a few megabytes.
        """
        if size_bytes <= limit_tokens or len(text) <= WHOLE_CHARACTERS:
            return
        cuts = range(0, len(text), SLICE_CHARACTERS)

        def counts(shift: int) -> list[int]:
            slices = (text[cut + min(cut, shift) : cut + SLICE_CHARACTERS] for cut in cuts)
            return [len(backend.encode_batch_fast([each], add_special_tokens=False)[0]) for each in slices]

        fewest, spared = counts(0), CUT_TOKENS * (len(cuts) - 1) - already
        for shift in range(1, LONGEST_RUN):
            if sum(fewest) - spared <= limit_tokens:
                return
            fewest = list(map(min, fewest, counts(shift)))
        _require_room(sum(fewest) - spared, limit_tokens, size_bytes)


class _SpelledControl(Exception):
    """The vocabulary has a control string as an ordinary token."""


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in lists of about SLICE_CHARACTERS."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters >= SLICE_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _frame(backend: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the tokenizer puts before and after a text."""
    framed, plain = (backend.encode("a", add_special_tokens=special).ids for special in (True, False))
    for at in range(len(framed) - len(plain) + 1):
        if framed[at : at + len(plain)] == plain:
            return tuple(framed[:at]), tuple(framed[at + len(plain) :])
    return tuple(backend.encode("").ids), ()


def _require_room(prompt_tokens: int, limit_tokens: int | None, prompt_bytes: int | None = None) -> None:
    """Raise ContextTooLong if the prompt exceeds the limit. prompt_bytes: None if the prompt was tokenized."""
    if limit_tokens is not None and prompt_tokens > limit_tokens:
        raise ContextTooLong(
            limit_tokens=limit_tokens,
            prompt_tokens=prompt_tokens,
            output_tokens=1,
            param="prompt",
            untokenized=None if prompt_bytes is None else f"{prompt_bytes} bytes",
        )


def _backend(folder: TokenizerFolder, definition: JsonObject) -> Any:
    try:
        backend = tokenizers.Tokenizer.from_str(msgspec.json.encode(definition).decode())
    except (KeyboardInterrupt, SystemExit):
        raise
    # the library raises a plain Exception, or a BaseException if its Rust code panics
    except BaseException as error:
        raise ConfigError(f"{folder.tokenizer_origin}: not a tokenizer: {excerpt(str(error))}") from None
    # a folder saved after training may set these; a prompt must never be cut or padded silently
    backend.no_truncation()
    backend.no_padding()
    return backend


def _with_marked_controls(definition: JsonObject) -> JsonObject:
    """The definition with all control tokens marked special, because `encode_special_tokens` covers only those."""
    marked = copy.copy(definition)
    marked["added_tokens"] = [{**token, "special": is_control(token)} for token in definition.get("added_tokens") or []]
    return marked


def _template(folder: TokenizerFolder, source: str | None, specials: dict[str, str]) -> ChatTemplate | None:
    return None if source is None else ChatTemplate(source, specials, folder.template_origin)


def _is_local(definition: JsonObject) -> bool:
    """Whether text between two control tokens is encoded like the same text alone."""
    steps = definition.get("pre_tokenizer") or {}
    kinds = {step.get("type") for step in steps.get("pretokenizers") or [steps]}
    normalizer = definition.get("normalizer") or {}
    return kinds <= LOCAL and (not normalizer or normalizer.get("type") in ("NFC", "NFKC"))


def _ids(backend: Any, text: str | None) -> frozenset[int]:
    id_ = None if text is None else backend.token_to_id(text)
    return frozenset() if id_ is None else frozenset((id_,))
