"""The sentence names what was counted and what was asked for, and nothing else."""

from __future__ import annotations

import pytest

from contracts.errors import ContextTooLong


@pytest.mark.parametrize(
    ("output", "untokenized", "told"),
    [
        (500, None, "The prompt has 2000 tokens and 500 are requested as output, 2500 in all."),
        (1, None, "The prompt has 2000 tokens, which leaves none for the response."),
        (0, None, "The prompt has 2000 tokens, which leaves none for the response."),
        (
            1,
            "90000 bytes",
            "The prompt has 90000 bytes, which are at least 2000 tokens, which leaves none for the response.",
        ),
    ],
)
def test_an_output_that_nobody_asked_for_is_not_told(output: int, untokenized: str | None, told: str) -> None:
    error = ContextTooLong(
        limit_tokens=2_000, prompt_tokens=2_000, output_tokens=output, param="prompt", untokenized=untokenized
    )
    assert error.message.startswith(f"This model's context is 2000 tokens. {told}")
