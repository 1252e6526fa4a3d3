"""Which names a client may give a chat template: none that engines' renderers take for their own."""

from __future__ import annotations

import inspect

import pytest
from transformers import PreTrainedTokenizerBase, ProcessorMixin
from transformers.utils.chat_template_utils import render_jinja_template

from contracts.engine_parameters import template_variables
from contracts.errors import InvalidField

OF_RENDERERS = {
    name
    for each in (
        PreTrainedTokenizerBase.apply_chat_template,
        ProcessorMixin.apply_chat_template,
        render_jinja_template,
    )
    for name, parameter in inspect.signature(each).parameters.items()
    if parameter.kind is not inspect.Parameter.VAR_KEYWORD
}
"""Arguments of Hugging Face's functions by which engines render: with another value they return what no engine
expects."""


@pytest.mark.parametrize("name", sorted(OF_RENDERERS))
def test_no_argument_of_a_renderer_is_a_variable(name: str) -> None:
    with pytest.raises(InvalidField):
        template_variables({name: "x"}, "chat_template_kwargs")
