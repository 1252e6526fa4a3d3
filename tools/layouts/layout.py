"""The layouts that a model's tokens allow, and the prompt of a gap in each, as the gateway would send it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import msgspec

from contracts.desired_state import Model, Pool
from contracts.errors import ConfigError
from contracts.fill_in_the_middle import Healing
from contracts.generation import Sampling, TextPrompt
from engines.drivers import registry
from engines.drivers.base import Capabilities
from engines.tokenizer.fair_executor import FairExecutor
from engines.tokenizer.fill import ORDERS, FillTemplate
from engines.tokenizer.off_loop import OffLoopTokenizer
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.fill.layout import lay_out
from gateway.wire.gap import Gap
from gateway.wire.prepared import Target

MAX_TOKENS = 64
"""Limit of a completion, which is the rest of a line."""
LINE_END = "\n"
"""Stop sequence of every completion."""
FOLDER_FILE = "tokenizer_config.json"
_IDS = Capabilities(running_count=True, token_prompts=True, literal_text=True, usage_by_id=False)
"""Prompts are laid out here and sent as token ids."""


class Layout(msgspec.Struct, frozen=True):
    """One way to lay a gap out."""

    order: str
    """`psm`: the prefix first; `spm`: the suffix first."""
    line_after: bool
    """Whether the half-typed line comes after the middle token."""
    files: bool = False
    """Whether parts of other files come first."""

    @property
    def name(self) -> str:
        """A name such as `psm-after+files`."""
        return f"{self.order}{'-after' if self.line_after else ''}{'+files' if self.files else ''}"


def require_layouts(model: Model, pool: Pool) -> None:
    """Raise ConfigError for a model whose engines lay out its gaps."""
    field = f"models.{model.name}.tokenizer"
    if model.tokenizer is None:
        raise ConfigError(f"{field}: none, so engines lay gaps out themselves; set the model's folder", param=field)
    if not registry.of_pool(pool).capabilities.token_prompts:
        field = f"pools.{pool.name}.driver"
        raise ConfigError(
            f"{field}: {pool.driver} takes no token ids, so its engines lay gaps out themselves; serve the model by "
            "sglang, vllm or embedded to choose a layout",
            param=field,
        )


def present_layout(model: Model, tokenizer: Tokenizer) -> Layout:
    """The layout that the gateway uses now. Raises ConfigError for a model that fills no gaps."""
    if tokenizer.fill is None:
        raise ConfigError(
            f"models.{model.name}.tokenizer: {model.tokenizer} has no fill-in-the-middle tokens, so there is no layout "
            "to choose; name a model of the tier autocomplete",
            param=f"models.{model.name}.tokenizer",
        )
    template = tokenizer.fill.with_typed_line(model.fim.typed_line)
    return Layout(template.order, template.line_after)


def layouts_of(template: FillTemplate) -> tuple[Layout, ...]:
    """All layouts that the tokens allow. A family without a middle token has one order: it continues the last part."""
    plain = [Layout(template.order, line_after=False)]
    if template.middle_ids:
        plain = [Layout(order, after) for order in ORDERS for after in (False, True)]
    return (*plain, *(msgspec.structs.replace(layout, files=True) for layout in plain))


class Prompt(msgspec.Struct, frozen=True):
    """The prompt that the gateway would send to an engine for a gap."""

    ids: tuple[int, ...]
    begins_with: str
    """The half-typed part of a word, with which the output begins; empty if no word is healed."""
    stop: tuple[str, ...]
    stop_ids: tuple[int, ...]
    max_tokens: int


class Prompts:
    """Prompts for one model. `close` ends its threads."""

    def __init__(self, model: Model, tokenizer: Tokenizer, healing: Healing | None) -> None:
        """healing: how the model's gateway heals gaps."""
        self._model = model
        self._capabilities = msgspec.structs.replace(_IDS, openings=healing is not None, own_openings=healing == "word")
        self._tokenizer = tokenizer
        self._executor = FairExecutor()
        self._targets: dict[Layout, Target] = {}

    async def prompt(self, layout: Layout, gap: Gap) -> Prompt:
        """The gateway's prompt for the gap, with the gap's snippets if the layout has files."""
        shown = gap if layout.files else msgspec.structs.replace(gap, snippets=())
        filled = await lay_out(shown, MAX_TOKENS, MAX_TOKENS, self._target(layout), "", (LINE_END,))
        prompt = filled.counted.prompt
        assert isinstance(prompt, TextPrompt)
        ids = tuple(id_ for id_ in prompt.prompts[0] if isinstance(id_, int))
        sampling = filled.ends.added(Sampling(filled.max_tokens, stop=(LINE_END,)))
        return Prompt(ids, prompt.begins_with, sampling.stop, sampling.stop_ids, sampling.max_tokens)

    def close(self) -> None:
        self._executor.close()

    def _target(self, layout: Layout) -> Target:
        if layout not in self._targets:
            tokenizer = copy.copy(self._tokenizer)
            assert tokenizer.fill is not None
            tokenizer.fill = msgspec.structs.replace(
                tokenizer.fill,
                order=layout.order,
                line_after=layout.line_after,
                comments_first=layout.order == "spm" and not tokenizer.fill.file_line,
            )
            fim = msgspec.structs.replace(self._model.fim, typed_line="auto", window=True, healing=True)
            model = msgspec.structs.replace(self._model, fim=fim)
            self._targets[layout] = Target(model, self._capabilities, OffLoopTokenizer(tokenizer, self._executor))
        return self._targets[layout]


def settings_for(chosen: Layout, present: Layout, model: Model) -> Sequence[str]:
    """The steps that make a layout the model's; empty for the present one."""
    steps = []
    if chosen.order != present.order:
        file = Path(model.tokenizer or ".") / FOLDER_FILE
        steps.append(f'{file}: "fim_order": "{chosen.order}", then restart the gateways')
    if chosen.line_after != present.line_after:
        where = "after_middle" if chosen.line_after else "before_middle"
        steps.append(
            f'slipstream.toml, in [[models]] of {model.name}: fim = {{ typed_line = "{where}" }}; for the model that '
            f'`up` chooses: [local.fim] typed_line = "{where}"'
        )
    if chosen.files and not present.files:
        steps.append("editors: send parts of other files (docs/concepts/autocomplete-prompts.md#other-files)")
    return steps
