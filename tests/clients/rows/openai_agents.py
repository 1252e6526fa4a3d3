# client: OpenAI Agents SDK
# pip: openai-agents==0.24.0
"""OpenAI's agents library; its default is the Responses API."""

import openai
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from pydantic import BaseModel

ASKED = "What is the capital of France?"
set_tracing_disabled(True)


class City(BaseModel):
    """The answer's form."""

    city: str


def agent(at, key=None, name=None, kind=OpenAIChatCompletionsModel, **more):
    client = openai.AsyncOpenAI(base_url=f"{at.url}/v1", api_key=key or at.key)
    return Agent(name="a", model=kind(model=name or at.model, openai_client=client), **more)


async def chat_streamed(at):
    result = Runner.run_streamed(agent(at), ASKED)
    async for _ in result.stream_events():
        pass
    assert "Paris" in result.final_output


async def chat_whole(at):
    assert "Paris" in (await Runner.run(agent(at), ASKED)).final_output


async def tools(at):
    called = []

    @function_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        called.append(city)
        return "sunny"

    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        assert "Paris" in (await Runner.run(agent(at, kind=kind, tools=[weather]), "use the tool")).final_output
    assert called == ["Paris", "Paris"]


async def structured_output(at):
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        assert (await Runner.run(agent(at, kind=kind, output_type=City), ASKED)).final_output.city == "Paris"


async def reasoning(at):
    result = await Runner.run(agent(at, kind=OpenAIResponsesModel), "think first")
    assert "reasoning_item" in [item.type for item in result.new_items]


async def usage_in_stream(at):
    result = Runner.run_streamed(agent(at, kind=OpenAIResponsesModel), ASKED)
    async for _ in result.stream_events():
        pass
    assert result.context_wrapper.usage.output_tokens > 0


async def error_401(at):
    with at.raises(openai.AuthenticationError):
        await Runner.run(agent(at, "sk-wrong"), ASKED)


async def error_404(at):
    with at.raises(openai.NotFoundError):
        await Runner.run(agent(at, name="no-such-model"), ASKED)


async def retry_429(at):
    assert "Paris" in (await Runner.run(agent(at, at.limited_key), ASKED)).final_output


async def responses(at):
    assert "Paris" in (await Runner.run(agent(at, kind=OpenAIResponsesModel), ASKED)).final_output


async def cancel(at):
    result = Runner.run_streamed(agent(at), at.forever)
    count = 0
    async for _ in result.stream_events():
        count += 1
        if count == 5:
            result.cancel()
