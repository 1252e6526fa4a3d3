# client: aider
# pip: aider-chat==0.86.2
"""Aider, headless."""

QUIET = ("--no-git", "--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--no-show-release-notes")


def ask(at, prompt, *arguments, key=None, model=None, expect="Paris", fails=False):
    env = {"OPENAI_API_BASE": f"{at.url}/v1", "OPENAI_API_KEY": key or at.key}
    command = ("aider", "--model", f"openai/{model or at.model}", *QUIET, "--yes-always", "--message", prompt)
    return at.program(*command, *arguments, env=env, expect=expect, fails=fails)


def chat_streamed(at):
    ask(at, "What is the capital of France?")


def chat_whole(at):
    ask(at, "What is the capital of France?", "--no-stream")


def usage_in_stream(at):
    ask(at, "What is the capital of France?", expect="Tokens:")


def error_401(at):
    ask(at, "x", key="sk-wrong", expect="AuthenticationError")


def error_404(at):
    ask(at, "x", model="no-such-model", expect="no-such-model")


def retry_429(at):
    ask(at, "x", key=at.limited_key)
