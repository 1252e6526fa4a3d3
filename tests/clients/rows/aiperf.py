# client: aiperf
# pip: aiperf==0.13.0
# environment: client-tools
"""aiperf, a load tool."""

from load_tool import completes, counts


def chat_streamed(at):
    completes(at, "aiperf")


def usage_in_stream(at):
    counts(at, "aiperf")
