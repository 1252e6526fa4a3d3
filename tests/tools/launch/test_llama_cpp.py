"""llama.cpp's command: a file or a name on the Hub, a context for each slot, a key that no command line shows."""

from __future__ import annotations

import pytest

from contracts.errors import ConfigError
from tests.tools.launch.launched import KEY_FILE, launch_of, options_of, pool_of
from tools.launch.render import Served, render
from tools.launch.spec import LaunchSpec, Reasoned


def _rendered(model: str, **given: object) -> LaunchSpec:
    pool = pool_of("llama_cpp", max_concurrency=6)
    launch = launch_of(model=model, shape="", gpu="", **given)
    served = Served("coder", Reasoned(2_048, "of the test"), None, None, "/srv/slipstream/token")
    return render(pool, pool.replicas[0], launch, served, speculation=False)


def test_slots_share_the_context_and_the_key_is_read_from_its_file() -> None:
    options = options_of(_rendered("/models/coder.gguf"))
    assert (options["--model"], options["--ctx-size"], options["--parallel"]) == (
        ("/models/coder.gguf",), ("12288",), ("6",),
    )  # fmt: skip
    spec = _rendered("ggml-org/coder-GGUF", max_running=2, program="/opt/llama-server", environment={"GGML_X": "1"})
    options = options_of(spec)
    assert (options["--hf-repo"], options["--ctx-size"]) == (("ggml-org/coder-GGUF",), ("4096",))
    assert spec.program == ("/opt/llama-server",)
    assert {each.name: each.value for each in spec.environment} == {
        "LLAMA_API_KEY": f"$(cat {KEY_FILE})",
        "GGML_X": "1",
    }


@pytest.mark.parametrize("word", ["--api-key", "--ctx-size"])
def test_a_key_on_the_command_line_and_an_option_given_twice_are_refused(word: str) -> None:
    with pytest.raises(ConfigError, match=r"^pools\.gpu\.launch\.extra_arguments: ") as refused:
        _rendered("/models/coder.gguf", extra_arguments=(word, "1"))
    assert "change that one" in refused.value.message or "api_key_file" in refused.value.message
