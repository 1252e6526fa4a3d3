# client: LiteLLM SDK
# pip: litellm==1.108.7 tenacity==9.1.2
"""LiteLLM as a library, by its provider for OpenAI-like servers."""

import litellm
from pydantic import BaseModel

ASKED = [{"role": "user", "content": "What is the capital of France?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
litellm.telemetry = False


class City(BaseModel):
    """The answer's form."""

    city: str


def completion(at, key=None, model=None, messages=ASKED, **more):
    return litellm.completion(
        model=f"hosted_vllm/{model or at.model}",
        api_base=f"{at.url}/v1",
        api_key=key or at.key,
        messages=messages,
        **more,
    )


def chat_streamed(at):
    assert "Paris" in "".join(part.choices[0].delta.content or "" for part in completion(at, stream=True))


def chat_whole(at):
    assert "Paris" in completion(at).choices[0].message.content


def tools(at):
    asked = [{"role": "user", "content": "use the tool"}]
    message = completion(at, messages=asked, tools=[TOOL]).choices[0].message
    [call] = message.tool_calls
    assert call.function.name == "weather"
    asked += [message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    assert "Paris" in completion(at, messages=asked, tools=[TOOL]).choices[0].message.content


def structured_output(at):
    assert City.model_validate_json(completion(at, response_format=City).choices[0].message.content).city == "Paris"


def reasoning(at):
    answer = completion(at, messages=[{"role": "user", "content": "think first"}])
    assert "capital" in answer.choices[0].message.reasoning_content


def usage_in_stream(at):
    parts = list(completion(at, stream=True, stream_options={"include_usage": True}))
    assert litellm.stream_chunk_builder(parts).usage.completion_tokens > 0


def error_401(at):
    with at.raises(litellm.AuthenticationError):
        completion(at, "sk-wrong")


def error_404(at):
    with at.raises(litellm.NotFoundError):
        completion(at, model="no-such-model")


def retry_429(at):
    # its constant strategy, the default, retries without a wait
    assert completion(at, at.limited_key, num_retries=5, retry_strategy="exponential_backoff_retry").choices


def embeddings(at):
    made = litellm.embedding(
        model=f"hosted_vllm/{at.vectors}", api_base=f"{at.url}/v1", api_key=at.key, input=["a", "b"]
    )
    assert [len(each["embedding"]) for each in made.data] == [3, 3]


def responses(at):
    answer = litellm.responses(
        model=f"openai/{at.model}", api_base=f"{at.url}/v1", api_key=at.key, input="What is the capital of France?"
    )
    assert "Paris" in answer.output[-1].content[0].text


def messages(at):
    answer = litellm.completion(model=f"anthropic/{at.model}", api_base=at.url, api_key=at.key, messages=ASKED)
    assert "Paris" in answer.choices[0].message.content


def cancel(at):
    stream = completion(at, messages=[{"role": "user", "content": at.forever}], stream=True)
    for _ in zip(range(3), stream, strict=False):
        pass
    stream.completion_stream.close()
