# client: guidellm
# pip: guidellm==0.8.1
# environment: client-tools
"""guidellm, a load tool."""

from load_tool import completes, counts


def chat_streamed(at):
    completes(at, "guidellm")


def usage_in_stream(at):
    counts(at, "guidellm")
