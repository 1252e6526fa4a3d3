# client: LangChain
# pip: langchain-openai==1.7.4 langchain==1.5.2
"""LangChain by its OpenAI classes, which its documents advise for compatible servers."""

import openai
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

ASKED = "What is the capital of France?"


class City(BaseModel):
    """The answer's form."""

    city: str


def chat(at, key=None, **more):
    return ChatOpenAI(**{"base_url": f"{at.url}/v1", "api_key": key or at.key, "model": at.model, **more})


def chat_streamed(at):
    assert "Paris" in "".join(str(chunk.content) for chunk in chat(at).stream(ASKED))


def chat_whole(at):
    assert "Paris" in chat(at).invoke(ASKED).content


def tools(at):
    called = []

    def weather(city: str) -> str:
        """The weather of a city."""
        called.append(city)
        return "sunny"

    result = create_agent(chat(at), tools=[weather]).invoke({"messages": [{"role": "user", "content": "use the tool"}]})
    assert called == ["Paris"]
    assert "Paris" in result["messages"][-1].content


def structured_output(at):
    for method in ("json_schema", "function_calling"):
        assert chat(at).with_structured_output(City, method=method).invoke(ASKED).city == "Paris"


def usage_in_stream(at):
    whole = None
    for chunk in chat(at, stream_usage=True).stream(ASKED):
        whole = chunk if whole is None else whole + chunk
    assert whole.usage_metadata["output_tokens"] > 0


def error_401(at):
    with at.raises(openai.AuthenticationError):
        chat(at, "sk-wrong").invoke(ASKED)


def error_404(at):
    with at.raises(openai.NotFoundError):
        chat(at, model="no-such-model").invoke(ASKED)


def retry_429(at):
    assert "Paris" in chat(at, at.limited_key).invoke(ASKED).content


def embeddings(at):
    # texts instead of token ids: the library has only OpenAI's own tokenizers
    made = OpenAIEmbeddings(
        base_url=f"{at.url}/v1", api_key=at.key, model=at.vectors, check_embedding_ctx_length=False
    ).embed_documents(["a", "b"])
    assert [len(each) for each in made] == [3, 3]


def responses(at):
    assert "Paris" in chat(at, use_responses_api=True).invoke(ASKED).text


def cancel(at):
    stream = chat(at).stream(at.forever)
    for _ in zip(range(3), stream, strict=False):
        pass
    stream.close()
