r"""The prompt after a user accepts a completion and presses Enter, for an engine to compute ahead.

    served    P import os\n  S \n\ndef f(): …  M x = os.ge          and the model answers `tcwd()`
    ahead     P import os\nx = os.getcwd()\n   S \n\ndef f(): …  M

This is useful only if a model has the suffix after the prefix, and the half-typed line after both. A keystroke then
changes only the end of the prompt, but a new line moves all of the suffix. If the suffix comes first, a new line costs
one line. If the half-typed line is part of the prefix, every keystroke costs the suffix, and the indentation that an
editor will insert is unknown here.
"""

from __future__ import annotations

import msgspec

from contracts.generation import BACKGROUND_PRIORITY, Sampling
from gateway.wire.fill.layout import lay_out
from gateway.wire.fill.request import Filled
from gateway.wire.gap import Gap
from gateway.wire.prepared import Prepared, Target, prepared


def worth_computing(served: Prepared, target: Target) -> bool:
    """Whether a new line after this gap's response would cost computation that can be done before it is typed."""
    gap, template = served.gap, target.fill
    if gap is None or served.warm_up or not target.capabilities.token_prompts:
        return False
    if template is None or template.order != "psm" or not template.line_after or not target.model.fim.warm_up:
        return False
    # a user in the middle of a line seldom presses Enter there
    rest = gap.suffix.partition("\n")[0]
    return served.generation.choices == 1 and bool(gap.suffix.strip()) and not rest.strip()


async def next_line(served: Prepared, completion: str, request_id: str, target: Target) -> Prepared:
    """The next line of a gap that is `worth_computing`, with the same room. completion: the client's text. Raises
    RequestError if it cannot be laid out."""
    gap, generation = served.gap, served.generation
    assert gap is not None
    prefix = gap.prefix + completion.replace("\r\n", "\n")
    if not prefix.endswith("\n"):
        prefix += "\n"
    caller, salt = generation.caller, served.salt
    gap = Gap(prefix, gap.suffix, gap.snippets, gap.path, gap.language)
    max_tokens = generation.sampling.max_tokens
    laid_out = await lay_out(gap, max_tokens, max_tokens, target, caller.organization_id)
    details = served.details  # the format treats the response like the client's own text
    if isinstance(details, Filled):
        details = msgspec.structs.replace(details, suffix=laid_out.suffix, min_confidence=0.0, warm_up=True)
    ahead = prepared(
        laid_out.counted,
        Sampling(max_tokens=1, temperature=0.0),
        request_id,
        caller,
        salt,
        target,
        stream=False,
        session=served.session,
        warm_up=True,
        details=details,
        gap=gap,
    )
    background = msgspec.structs.replace(ahead.generation, priority=BACKGROUND_PRIORITY)
    return msgspec.structs.replace(ahead, generation=background)
