"""vLLM's endpoints for token ids as wire formats. The ids are the same that the model's completions and chats send."""

from __future__ import annotations

import msgspec

from contracts.errors import InvalidField, UnsupportedField
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, TextPrompt
from engines.tokenizer.off_loop import OffLoopTokenizer
from gateway.wire.chat_prompt import counted_chat
from gateway.wire.chunk import ReadError
from gateway.wire.config import RequestConfig
from gateway.wire.endpoint_format import BodyFormat, BodyT
from gateway.wire.format import Transcoder
from gateway.wire.openai.decode import Decoder
from gateway.wire.openai.prepare import prepare_chat
from gateway.wire.prepared import Prepared, Target
from gateway.wire.tokenize.schema import Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest
from gateway.wire.usage_tracker import UsageTracker


class _TokenFormat(BodyFormat[BodyT]):
    """The common part of both formats. Nothing is generated, so nothing is relayed."""

    heartbeat = b""

    def transcoder(self, request_id: str, prepared: Prepared, usage: UsageTracker, read_error: ReadError) -> Transcoder:
        raise NotImplementedError

    def counted(self, prepared: Prepared, request_id: str) -> bytes:
        """The JSON of the response."""
        return msgspec.json.encode(prepared.details)


class TokenizeFormat(_TokenFormat[TokenizeRequest]):
    """POST /tokenize."""

    name = "tokenize"
    body_type = TokenizeRequest

    def __init__(self, config: RequestConfig) -> None:
        super().__init__(config)
        self._chats = Decoder(config)

    async def prepare(
        self, asked: TokenizeRequest, request_id: str, caller: Caller, salt: str, target: Target
    ) -> Prepared:
        """Raises a RequestError that names the field, ContextTooLong for a prompt that cannot fit."""
        tokenizer = _tokenizer_of(target)
        if (asked.prompt is None) is (asked.messages is None):
            raise InvalidField("Send exactly one of 'prompt' and 'messages'.", param="prompt")
        if asked.messages is not None:
            ids = await self._chat_ids(asked, request_id, caller, salt, target)
        else:
            prompt = asked.prompt or ""
            encode = tokenizer.tokenizer.plain_ids if asked.add_special_tokens is False else tokenizer.tokenizer.encode
            limit = target.model.context_tokens
            ids = await tokenizer.run(caller.organization_id, prompt, lambda: encode(prompt, limit))
        strings = None
        if asked.return_token_strs:
            text_of = tokenizer.tokenizer.token_text
            strings = await tokenizer.run(caller.organization_id, ids, lambda: [text_of(id_) for id_ in ids])
        return _answered(
            Tokenized(len(ids), target.model.context_tokens, ids, strings), request_id, caller, target, len(ids)
        )

    async def _chat_ids(
        self, asked: TokenizeRequest, request_id: str, caller: Caller, salt: str, target: Target
    ) -> list[int]:
        """The ids of a conversation, after all checks and changes that a chat completion makes."""
        names = ("model", "messages", "tools", "chat_template_kwargs")
        fields = {name: value for name in names if (value := getattr(asked, name)) is not None}
        chat = self._chats.chat(msgspec.json.encode(fields))
        prompt = (await prepare_chat(chat, request_id, caller, salt, target)).generation.prompt
        assert isinstance(prompt, ChatPrompt)
        return list((await counted_chat(prompt, target, caller.organization_id)).ids or ())


class DetokenizeFormat(_TokenFormat[DetokenizeRequest]):
    """POST /detokenize."""

    name = "detokenize"
    body_type = DetokenizeRequest

    async def prepare(
        self, asked: DetokenizeRequest, request_id: str, caller: Caller, salt: str, target: Target
    ) -> Prepared:
        tokenizer, ids = _tokenizer_of(target), asked.tokens
        if ids:
            tokenizer.tokenizer.require_known(ids, f"tokens[{ids.index(max(ids))}]")
        text = await tokenizer.run(caller.organization_id, ids, lambda: tokenizer.tokenizer.whole_text(ids))
        return _answered(Detokenized(text), request_id, caller, target, len(ids))


def _tokenizer_of(target: Target) -> OffLoopTokenizer:
    if target.tokenizer is None:
        raise UnsupportedField(
            f"'{target.model.name}' has no tokenizer configured, so Slipstream does not know its token ids.",
            param="model",
        )
    return target.tokenizer


def _answered(details: msgspec.Struct, request_id: str, caller: Caller, target: Target, tokens: int) -> Prepared:
    model = target.model
    generation = Generation(request_id, caller, model.tier, model.name, TextPrompt(("",)), Sampling(max_tokens=0))
    return Prepared(generation, tokens, exact=True, details=details)
