"""Traffic: tenants whose requests share documents, arriving at random, at a steady rate or in bursts."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

import aiohttp
import msgspec

from benchmarks.diagnosed.paced_engine import CHARACTERS, MODEL

TENANTS = ("acme", "bolt", "corp")
DOCUMENTS = 12
"""Documents of each tenant, which its requests share and caches hold."""
DOCUMENT_TOKENS, QUESTION_TOKENS = 1_000, (100, 500)
OUTPUT_TOKENS = (12, 28)
SIPPED_TOKENS, SIPPED_ALTERNATIVES = 160, 20
"""The slow client requests long answers with log probabilities, some 300 kB, else the sockets' buffers hold all."""
RECEIVE_BUFFER_BYTES, ETHERNET_SEGMENT_BYTES = 4_096, 1_400
SIP_BYTES, SIP_S = 4_096, 0.08
GUARD_S = 60.0


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a window's requests."""

    rate: float = 9.0
    """Requests a second."""
    burst: int = 1
    """Requests at a time."""
    question_tokens: tuple[int, int] = QUESTION_TOKENS
    """Tokens after the document."""
    output_tokens: tuple[int, int] = OUTPUT_TOKENS
    dated: frozenset[str] = frozenset()
    """Tenants whose prompts begin with a text that never recurs."""
    sipping: frozenset[str] = frozenset()
    """Tenants whose clients read slowly."""


class Load:
    """The clients of all tenants."""

    def __init__(self, session: aiohttp.ClientSession, source: random.Random) -> None:
        self._session = session
        self._source = source
        self._numbered = 0
        self.statuses: dict[int, int] = {}

    async def run(self, seconds: float, shape: Shape, url: str, keys: Mapping[str, str]) -> None:
        """Send requests for `seconds`, then wait for all responses. keys: by tenant."""
        clock = asyncio.get_running_loop().time
        ends_s = clock() + seconds
        due_s = clock()
        async with asyncio.TaskGroup() as group:
            while (due_s := due_s + self._source.expovariate(shape.rate / shape.burst)) < ends_s:
                await asyncio.sleep(due_s - clock())
                for _ in range(shape.burst):
                    tenant = self._source.choice(TENANTS)
                    group.create_task(self._ask(url, keys[tenant], tenant, shape))

    async def _ask(self, url: str, key: str, tenant: str, shape: Shape) -> None:
        body = self._body(tenant, shape)
        try:
            async with asyncio.timeout(GUARD_S):
                if tenant in shape.sipping:
                    status = await sip(url, key, body)
                else:
                    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
                    async with self._session.post(f"{url}/v1/chat/completions", data=body, headers=headers) as response:
                        await response.read()
                        status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError):
            status = 0
        self.statuses[status] = self.statuses.get(status, 0) + 1

    def _body(self, tenant: str, shape: Shape) -> bytes:
        source = self._source
        self._numbered += 1
        document = words(f"{tenant} {source.randrange(DOCUMENTS)}", DOCUMENT_TOKENS)
        if tenant in shape.dated:
            document = f"It is now {self._numbered} seconds past. {document}"
        question = words(f"question {self._numbered} {source.random()}", source.randint(*shape.question_tokens))
        sipping = tenant in shape.sipping
        request = {
            "model": MODEL,
            "messages": [{"role": "system", "content": document}, {"role": "user", "content": question}],
            "max_tokens": SIPPED_TOKENS if sipping else source.randint(*shape.output_tokens),
            "stream": True,
        }
        if sipping:
            request |= {"logprobs": True, "top_logprobs": SIPPED_ALTERNATIVES}
        return msgspec.json.encode(request)


def words(seed: str, tokens: int) -> str:
    """Text of `tokens` tokens; the same for the same seed."""
    source = random.Random(seed)
    return "".join(f"{source.randrange(36**3):04d} "[-CHARACTERS:] for _ in range(tokens))


async def sip(url: str, key: str, body: bytes) -> int:
    """A client that reads little at a time, with pauses. Returns the status."""
    host, loop = urlsplit(url), asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        # Set before it connects, which announces both. Loopback's own segments of 64 kB give the sender 2.8 MB of
        # buffer, in which every answer fits; those of an Ethernet 48 kB.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, ETHERNET_SEGMENT_BYTES)
        await loop.sock_connect(connection, (str(host.hostname), int(host.port or 80)))
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        await loop.sock_sendall(connection, head.encode() + body)
        status = 0
        while data := await loop.sock_recv(connection, SIP_BYTES):
            status = status or int(data.split(b" ", 2)[1])
            await asyncio.sleep(SIP_S)
        return status
