"""Several organizations before an engine that is given one request at a time: who is served in which order."""

from __future__ import annotations

import re
from typing import Any

import httpx2
import msgspec
import openai
from openai.types.chat import ChatCompletionMessageParam

from infra.local.folders import DataFolder
from tests.deployment import Deployment
from tests.waiting import eventually

GUARD_S = 120.0
"""Against hanging for ever: a busy machine may take seconds to answer."""
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
Stream = openai.AsyncStream[openai.types.chat.ChatCompletionChunk]


class OnePlace:
    """The platform before one engine with one place. model: what that engine is asked for by customers."""

    def __init__(self, platform: Deployment, model: str) -> None:
        self.platform = platform
        self.model = model
        self.served: list[str] = []
        """Names of the requests, in the order in which they were answered."""
        self.request_ids: dict[str, str] = {}
        self.clients: dict[str, openai.AsyncOpenAI] = {}
        self.tiers: dict[str, str | None] = {}
        """What the answers say in `service_tier`, by name."""

    def client(self, key: str) -> openai.AsyncOpenAI:
        """One for each key."""
        if key not in self.clients:
            self.clients[key] = openai.AsyncOpenAI(
                base_url=f"{self.platform.url}/v1", api_key=key, max_retries=0, timeout=5 * GUARD_S
            )
        return self.clients[key]

    async def put_share(self, organization: str, share: int) -> None:
        """Over the admin API, by the owner whom `up` made."""
        found = re.search(r"sk-slip-admin-[0-9A-Za-z]+", self.platform.output)
        assert found is not None, self.platform.output
        headers = {"authorization": f"Bearer {found.group()}"}
        async with httpx2.AsyncClient(
            base_url=f"{self.platform.url}/admin/v1", headers=headers, timeout=GUARD_S
        ) as http:
            listed = (await http.get("/organizations")).json()["data"]
            (id_,) = (one["id"] for one in listed if one["name"] == organization)
            answer = await http.put(f"/priorities/organization/{id_}/chat", json={"share": share})
            assert answer.status_code == 200, answer.text

    async def answers(self, key: str) -> None:
        """Return once the engine has answered a request."""

        async def answered() -> bool:
            try:
                await self.client(key).chat.completions.create(model=self.model, messages=HELLO, max_tokens=1)
            except openai.APIError:
                return False
            return True

        await eventually(answered)

    async def hold(self, key: str, **asked: Any) -> Stream:
        """Take the only place until the stream is closed. asked: what keeps the engine at it."""
        stream: Stream = await self.client(key).chat.completions.create(
            model=self.model, messages=HELLO, stream=True, **asked
        )
        assert await anext(stream)
        return stream

    async def ask(self, name: str, key: str, tier: str | None = None, **asked: Any) -> None:
        """One request, to its end."""
        more = {} if tier is None else {"service_tier": tier}
        answer = await self.client(key).chat.completions.with_raw_response.create(
            model=self.model, messages=[{"role": "user", "content": "The same for all"}], extra_body=more, **asked
        )
        self.served.append(name)
        self.request_ids[name] = answer.headers["x-request-id"]
        self.tiers[name] = answer.parse().service_tier

    async def waiting(self, count: int) -> None:
        """Return once so many wait in the router."""
        listed = msgspec.json.decode(DataFolder(self.platform.data).prometheus_targets.read_bytes())
        (target,) = (one["targets"][0] for one in listed if one["labels"]["instance"] == "router")
        async with httpx2.AsyncClient(timeout=GUARD_S) as http:

            async def holds() -> bool:
                page = (await http.get(f"http://{target}/metrics")).text
                queued = (line for line in page.splitlines() if line.startswith("slipstream_router_queued{"))
                return sum(float(line.rpartition(" ")[2]) for line in queued) == count

            await eventually(holds)
