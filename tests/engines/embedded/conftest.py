from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
import torch

from tests.engines.embedded.engine_process import TOKEN, Process
from tests.engines.embedded.served import Served, served
from tests.engines.embedded.tiny import CONFIG, SHIPPED, random_weights, write_model


@pytest.fixture(autouse=True)
def _as_many_threads_as_before() -> Iterator[None]:
    """PyTorch's setting lasts: two threads on busy cores make the later files of a worker twenty times slower."""
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before, "give an engine built in the tests' process threads=1"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer model that several tests share."""
    return write_model(tmp_path_factory.mktemp("models") / "tiny", CONFIG, random_weights(CONFIG))


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Starts engines; what is left at the end is killed."""
    processes: list[Process] = []

    def starter(**config: Any) -> Process:
        processes.append(Process(**config))
        return processes[-1]

    yield starter
    for process in processes:
        process.child.kill()
        process.child.communicate()


@pytest.fixture(scope="module")
async def chat_engine() -> AsyncIterator[Served]:
    scheduler = {"max_running": 8, "max_queued": 8}
    async with served(model=str(SHIPPED / "slipstream-chat"), scheduler=scheduler) as engine:
        yield engine


@pytest.fixture(scope="module")
async def code_engine() -> AsyncIterator[Served]:
    speculation = {"method": "ngram", "governed": False, "ngram_least": 1}
    async with served(model=str(SHIPPED / "slipstream-code"), speculation=speculation) as engine:
        yield engine


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {TOKEN}"}) as session:
        yield session


@pytest.fixture
async def chat(chat_engine: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{chat_engine.url}/v1", api_key=TOKEN, max_retries=0) as client:
        yield client


@pytest.fixture
async def code(code_engine: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{code_engine.url}/v1", api_key=TOKEN, max_retries=0) as client:
        yield client
