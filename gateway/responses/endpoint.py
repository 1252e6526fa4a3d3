"""Serves the Responses API, with the store before and after the steps of every endpoint.

The store is read only for a request that continues a stored response or a conversation, or names their items, and
written only for a request with `store` or in a conversation. All others are served like any other format's. A request
with `background` is stored and answered at once, and the worker sends it again with its own token.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from contracts.generation import Caller
from contracts.request_id import RESPONSE_PREFIX, answer_id
from gateway.auth.bearer import authenticate
from gateway.auth.key_record import KeyRecord
from gateway.auth.scopes import Scope
from gateway.http.client_connection import ClientConnection
from gateway.http.loop_shares import REFUSAL_S, LoopShares
from gateway.http.response import ResponseWriter
from gateway.responses.background import FIRST_EVENTS, BackgroundResponses, Queued, require_tenants
from gateway.responses.conversations import ConversationStore, Grown, StoredItem
from gateway.responses.event_streams import EventStreams
from gateway.responses.store import ResponseStore, Stored
from gateway.responses.streaming import send, streamed
from gateway.serving.body_room import BodyRoom
from gateway.serving.endpoint import InferenceEndpoint, InferenceServices
from gateway.serving.request import Arrival, InferenceRequest
from gateway.serving.request_spans import Ended
from gateway.serving.token_count import TokenCountEndpoint
from gateway.wire.body_shape import BodyShape
from gateway.wire.config import RequestConfig
from gateway.wire.format import Asked as AnyAsked
from gateway.wire.format import WireFormat
from gateway.wire.responses.envelope import settings, state
from gateway.wire.responses.events import event_of
from gateway.wire.responses.format import ResponsesFormat
from gateway.wire.responses.prepare import Asked, Details
from gateway.wire.responses.schema import Item, ItemReference
from gateway.wire.responses.stored import identified, input_json, item_in, items_in, output_in, response_of


class _Continued(InferenceEndpoint[Asked]):
    """Adds a request's history from the store before the request is prepared."""

    def __init__(
        self,
        services: InferenceServices,
        wire_format: WireFormat[Asked],
        store: ResponseStore,
        conversations: ConversationStore,
        background: BackgroundResponses,
        max_body_bytes: int,
        config: RequestConfig,
        shares: LoopShares,
        room: BodyRoom,
    ) -> None:
        super().__init__(services, wire_format, Scope.CHAT, max_body_bytes, config, shares, room)
        self._store, self._conversations, self._background = store, conversations, background

    async def _prepared(self, arrival: Arrival, key: KeyRecord, decoded: AnyAsked) -> InferenceRequest:
        assert isinstance(decoded, Asked)
        own = (arrival.client_request_id or "") if key.background else ""
        return await super()._prepared(arrival, key, await self._with_history(decoded, key.caller, own))

    async def _with_history(self, decoded: Asked, caller: Caller, own: str) -> Asked:
        """The request with its history, and with the items that it names. own: its response's id, if that is in the
        background. Raises NotFound, and Conflict if an earlier response has not finished."""
        history: tuple[Item, ...] = ()
        if (conversation_id := decoded.request.conversation_id) is not None:
            await self._background.require_finished(caller, conversation_id, own)
            stored = [item.item for item in await self._conversations.items(caller, conversation_id)]
            history = tuple(await self._decoded(stored, caller, lambda: [item_in(text) for text in stored]))
        if (previous := decoded.request.previous_response_id) is not None:
            turns = await self._store.history(caller, previous)
            history = tuple(await self._items(turns, caller))
        items = decoded.items
        if references := {item.id: response_of(item) for item in items if isinstance(item, ItemReference)}:
            found = await self._store.several(caller, sorted(set(references.values())))
            named = {item.id: item for item in await self._items([*found.values()], caller)}
            items = tuple(named.get(item.id, item) if isinstance(item, ItemReference) else item for item in items)
        return Asked(decoded.request, history, items)

    async def _items(self, turns: list[Stored], caller: Caller) -> list[Item]:
        texts = [text for turn in turns for text in (turn.input, output_in(turn.response))]
        return await self._decoded(texts, caller, lambda: [item for turn in turns for item in items_in(*turn)])

    async def _decoded(self, texts: list[bytes], caller: Caller, decode: Callable[[], list[Item]]) -> list[Item]:
        """The items of these texts, within the limits of one body."""

        def items() -> list[Item]:
            shape = BodyShape(self._config)
            for text in texts:
                shape.feed(text)
                shape.end()
            return decode()

        return await self._in_turn(sum(map(len, texts)), caller.organization_id, items)


class ResponsesEndpoint(_Continued):
    """POST /v1/responses. leaving: whether this gateway is stopping."""

    def __init__(
        self,
        services: InferenceServices,
        wire_format: WireFormat[Asked],
        streams: EventStreams,
        leaving: Callable[[], bool],
        *stored: Any,
    ) -> None:
        super().__init__(services, wire_format, *stored)
        self._streams, self._leaving = streams, leaving

    async def _prepared(self, arrival: Arrival, key: KeyRecord, decoded: AnyAsked) -> InferenceRequest:
        assert isinstance(self._format, ResponsesFormat)
        assert isinstance(decoded, Asked)
        response_id = answer_id(RESPONSE_PREFIX, arrival.request_id)
        if key.background:
            response_id = arrival.client_request_id or response_id
        elif decoded.request.background:
            require_tenants(key)
            if decoded.request.stream:
                self._streams.require_room(key.caller.organization_id)
        wire_format = arrival.wire_format = self._format.of(arrival.request_id, response_id)
        if key.background:
            wire_format.heartbeat = b""  # a stream must begin with the engine's, and a refusal must have its status
        request = await super()._prepared(arrival, key, decoded)
        assert isinstance(request.prepared.details, Details)
        whole = request.prepared.details.asked
        conversation_id = whole.request.conversation_id
        if key.background:  # the worker stores the response with its bill
            if whole.request.stream:
                request.was_ended = partial(self._background.was_ended, request.caller, response_id)
            return request
        if whole.request.background:
            wire_format.queued = await self._queued(request, whole, response_id)
        elif whole.request.store or conversation_id is not None:
            own, previous = input_json(whole.items, response_id), whole.request.previous_response_id

            async def keep() -> None:
                assert wire_format.answer is not None
                stored = Stored(own, wire_format.answer.response)
                grown = None
                if conversation_id is not None:
                    grown = Grown(conversation_id, [StoredItem(*item) for item in identified(*stored)])
                if whole.request.store:
                    await self._store.keep(request.caller, response_id, previous, stored, grown)
                elif grown is not None:
                    await self._conversations.add(request.caller, grown)

            request.before_end = keep
        return request

    async def _queued(self, request: InferenceRequest, whole: Asked, response_id: str) -> bytes:
        """Queue the request for the worker. Returns the response as it is now."""
        now = settings(response_id, int(time.time()), request.prepared) | state("queued", [])
        stored = Stored(input_json(whole.items, response_id), msgspec.json.encode(now))
        first = FIRST_EVENTS if whole.request.stream else ()
        events = b"".join(event_of(kind, number, {"response": now}) for number, kind in enumerate(first))
        body = msgspec.json.encode(msgspec.structs.replace(whole.request, client_metadata=None))
        previous, conversation_id = whole.request.previous_response_id, whole.request.conversation_id
        queued = Queued(response_id, previous, conversation_id, stored, body, events)
        await self._background.queue(request.caller, queued)
        return stored.response

    async def _answer(self, arrival: Arrival, connection: ClientConnection, request: InferenceRequest) -> Ended:
        assert isinstance(arrival.wire_format, ResponsesFormat)
        if not (queued := arrival.wire_format.queued):
            return await super()._answer(arrival, connection, request)
        if not arrival.paid:  # no limit counts it before it runs, so it is paced like a refused request
            self._shares.unserved.spend(request.caller.organization_id, REFUSAL_S)
        response = ResponseWriter(connection, arrival.wire_format, arrival.request_id)
        if request.generation.stream:
            response_id = arrival.wire_format.response_id
            check = partial(authenticate, self._format.authorization(arrival.headers), self._services.keyring)
            parts = self._streams, self._store
            events = streamed(*parts, request.caller, response_id, None, self._leaving, check)
            # long requests must not stay in memory while the client reads
            del queued, request.prepared, request.generation
            arrival.wire_format.queued = b""
            response.start_stream()
            await send(connection, events)
        else:
            response.whole(200, queued)
        self._services.metrics.answered(request.tier, arrival.endpoint, 200, "none")
        return Ended(200)


class InputTokensEndpoint(_Continued, TokenCountEndpoint[Asked]):
    """POST /v1/responses/input_tokens."""
