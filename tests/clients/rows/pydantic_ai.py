# client: Pydantic AI
# pip: pydantic-ai-slim[openai,anthropic]==2.68.0
"""Pydantic AI with its OpenAI provider."""

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ThinkingPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

ASKED = "What is the capital of France?"


class Place(BaseModel):
    """A nested form, which schemas refer to."""

    name: str


class City(BaseModel):
    """The answer's form."""

    city: Place


def model(at, key=None, name=None, kind=OpenAIChatModel):
    return kind(name or at.model, provider=OpenAIProvider(base_url=f"{at.url}/v1", api_key=key or at.key))


async def chat_streamed(at):
    async with Agent(model(at)).run_stream(ASKED) as result:
        assert "Paris" in await result.get_output()


async def chat_whole(at):
    assert "Paris" in (await Agent(model(at)).run(ASKED)).output


async def tools(at):
    called = []

    def weather(city: str) -> str:
        """The weather of a city."""
        called.append(city)
        return "sunny"

    result = await Agent(model(at), tools=[weather]).run("use the tool")
    assert called == ["Paris"]
    assert "Paris" in result.output


async def structured_output(at):
    for form in (City, NativeOutput(City)):
        assert (await Agent(model(at), output_type=form).run(ASKED)).output.city.name == "Paris"


async def reasoning(at):
    result = await Agent(model(at)).run("think first")
    [thought] = [part for part in result.response.parts if isinstance(part, ThinkingPart)]
    assert "capital" in thought.content


async def usage_in_stream(at):
    async with Agent(model(at)).run_stream(ASKED) as result:
        await result.get_output()
        assert result.usage.output_tokens > 0


async def _status(of):
    try:
        await Agent(of).run(ASKED)
    except ModelHTTPError as error:
        return error.status_code
    return 200


async def error_401(at):
    assert await _status(model(at, "sk-wrong")) == 401


async def error_404(at):
    assert await _status(model(at, name="no-such-model")) == 404


async def retry_429(at):
    assert "Paris" in (await Agent(model(at, at.limited_key)).run(ASKED)).output


async def responses(at):
    assert "Paris" in (await Agent(model(at, kind=OpenAIResponsesModel)).run(ASKED)).output


async def messages(at):
    anthropic = AnthropicModel(at.model, provider=AnthropicProvider(base_url=at.url, api_key=at.key))
    assert "Paris" in (await Agent(anthropic).run(ASKED)).output


async def cancel(at):
    async with Agent(model(at)).run_stream(at.forever) as result:
        count = 0
        async for _ in result.stream_text(delta=True, debounce_by=None):
            count += 1
            if count == 3:
                break
