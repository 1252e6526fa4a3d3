r"""The prompt as it will be when a completion has been accepted and Enter pressed, for an engine to compute ahead.

    served    P import os\n  S \n\ndef f(): …  M x = os.ge          and the model answers `tcwd()`
    ahead     P import os\nx = os.getcwd()\n   S \n\ndef f(): …  M

Only where a model has the suffix behind the prefix, and the half-typed line behind both, is this worth anything. A
keystroke then changes the end of the prompt alone, but a new line all of the suffix. Where the suffix stands first a
new line costs a line. Where the half-typed line is part of the prefix every keystroke costs the suffix, and what an
editor will indent the new line by nobody knows here.
"""

from __future__ import annotations

import msgspec

from contracts.generation import BACKGROUND_PRIORITY, Sampling
from gateway.wire.fill.layout import lay_out
from gateway.wire.fill.request import Filled
from gateway.wire.gap import Gap
from gateway.wire.prepared import Prepared, Target, prepared


def worth_computing(served: Prepared, target: Target) -> bool:
    """Whether a new line behind this gap's answer would cost what can be computed before it is typed."""
    gap, template = served.gap, target.fill
    if gap is None or served.warm_up or not target.capabilities.token_prompts:
        return False
    if template is None or template.order != "psm" or not template.line_after or not target.model.fim.warm_up:
        return False
    # somebody in the middle of a line seldom presses Enter there
    rest = gap.suffix.partition("\n")[0]
    return served.generation.choices == 1 and bool(gap.suffix.strip()) and not rest.strip()


async def next_line(served: Prepared, completion: str, request_id: str, target: Target) -> Prepared:
    """Of a gap that is `worth_computing`, with the room that it had. completion: as the client has it. Raises
    RequestError where it cannot be laid out."""
    gap, generation = served.gap, served.generation
    assert gap is not None
    prefix = gap.prefix + completion.replace("\r\n", "\n")
    if not prefix.endswith("\n"):
        prefix += "\n"
    caller, salt = generation.caller, served.salt
    gap = Gap(prefix, gap.suffix, gap.snippets, gap.path, gap.language)
    most_tokens = generation.sampling.max_tokens
    laid_out = await lay_out(gap, most_tokens, most_tokens, target, caller.organization_id)
    details = served.details  # the format makes of the answer what it would make of the client's
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
