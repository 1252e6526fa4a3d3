"""What gateway and router tell each other holds whatever an engine counted."""

from __future__ import annotations

import pytest

from contracts.lease import LeaseEnd
from contracts.usage import Finish, Usage
from router.protocol import messages


@pytest.mark.parametrize("tokens", [0, 2**32 - 1, 2**32, 4_500_000_000])
def test_the_end_of_a_lease_holds_any_count(tokens: int) -> None:
    """It is written with others' ends, which one that cannot be encoded would take along."""
    usage = Usage(prompt_tokens=tokens, completion_tokens=tokens, cached_tokens=tokens)
    message = messages.release(LeaseEnd("lease", Finish.COMPLETE, usage))
    told = messages.end_of(message.release).usage
    held = min(tokens, 2**32 - 1)
    assert (told.prompt_tokens, told.completion_tokens, told.cached_tokens) == (held, held, held)
    assert messages.first_token("lease", 0.1, tokens).first_token.cached_tokens == held
