# client: sglang.bench_serving
# pip: sglang==0.5.23
# environment: client-tools
"""sglang.bench_serving, a load tool. It reads no usage in a stream and counts the tokens that it requested."""

from load_tool import completes


def chat_streamed(at):
    completes(at, "sglang")
