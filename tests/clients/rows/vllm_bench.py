# client: vllm bench serve
# pip: vllm==0.33.0
# environment: client-tools
"""vllm bench serve, a load tool."""

from load_tool import completes, counts


def chat_streamed(at):
    completes(at, "vllm")


def usage_in_stream(at):
    counts(at, "vllm")
