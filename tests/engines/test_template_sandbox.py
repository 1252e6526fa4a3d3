"""A model file's chat template may be hostile: it is refused, fails within its allowance, or renders as usual."""

from __future__ import annotations

import resource
from typing import Any

import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from contracts.errors import ConfigError, InvalidField
from engines.tokenizer import template_sandbox
from engines.tokenizer.template import SOURCE_CHARACTERS, ChatTemplate
from engines.tokenizer.template_sandbox import PRODUCED

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "a\nb b"},
    {"role": "assistant", "content": "c", "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, {}]}}}]},
]
HARMLESS = (
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}"
    "{{ m.role + ': ' ~ m['content'] | trim }}{% if loop.index0 % 2 == 1 %};{% endif %}{% endfor %}",
    "{% for m in messages if m.role != 'system' %}{{ loop.previtem }}{% if loop.first %}{% continue %}{% endif %}"
    "{{ loop.length }}{% else %}none{% endfor %}",
    "{% for k, v in messages[0].items() %}{{ k }}={{ v }}{% endfor %}{% for a, b in [(1, 2), [3, 4]] %}{{ a * b }}"
    "{% endfor %}{% for x in none or [] %}{% else %}empty{% endfor %}",
    "{% set ns = namespace(found=false, text='') %}{% for m in messages %}{% set ns.text = ns.text ~ m.content %}"
    "{% endfor %}{{ ns.text }}{{ [{'role': 'x', 'list': [ns.found, 'y']}] + messages[:1] }}{{ (1, ns.text) }}",
    "{% macro show(m, mark='-') %}{{ mark * 3 }}{{ m.content }}{{ caller() if caller else '' }}{% endmacro %}"
    "{{ show(messages[0]) }}{% call show(messages[1], mark='=') %}inside{% endcall %}",
    "{{ messages | map(attribute='role') | join(', ') }}{{ ', '.join(['a', 'b']) }}{{ 'aXb'.replace('X', '--') }}"
    "{{ 'aXb' | replace('X', 1) }}{{ [3, 1, 2] | sort | list }}{{ [1, 2] | sum }}{{ 2 ** 5 }}{{ 7 // 2 }}"
    "{{ messages[1].content | indent(2) }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    "{{ '%s-%03d' | format('a', 5) }}{{ '%d' % 3 }}{{ '{}:{x:>4}'.format(1, x=2) }}{{ 1.256 | round(1) }}",
    "{% for n in [[1, [2]], [3]] recursive %}{{ loop(n) if n is iterable else n }}{% endfor %}"
    "{{ messages[1].content.split('\n')[-1].strip() }}{{ range(3) | list }}{{ messages | groupby('role') | length }}",
    "{% set x %}{{ messages[0].content }}{% endset %}{{ x | upper }}{{ dict(a=1) | dictsort }}{{ 0.5 * 4 }}"
    "{{ messages[-1].tool_calls is defined }}{{ (messages | last).role[::-1] }}{{ {'b': 1, 'a': 2} | items | list }}",
)
"""What the templates of published models do."""
FAILING = (
    "{{ 'a' * 2000000000 }}",
    "{{ ([0] * 2000) * 1000000 }}",
    "{% set x = messages | length + 8 %}{{ 9 ** (9 ** x) }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) recursive %}{{ loop(range(99999)) if loop.depth < 3 }}{% endfor %}",
    "{% macro f(n) %}{{ f(n - 1) if n }}{{ f(n - 1) if n }}{% endmacro %}{{ f(60) }}",
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = dict(a=ns.x, b=ns.x) %}{% endfor %}",
    "{% set a = 'a' * 100000 %}{{ a.replace('a', a) }}",
    "{% set a = 'a' * 100000 %}{{ a | replace('a', a) }}",
    "{% set a = 'a' * 100000 %}{{ a.join([a] * 100000) }}",
    "{% set a = 'a' * 1000000 %}{{ ([a] * 1000) | map('upper') | list | length }}",
    "{% set a = 'a' * 1000000 %}{% for i in range(1000) %}{{ a }}{% endfor %}",
    "{{ '%2000000000d' | format(1) }}",
    "{{ '%*d' % (2000000000, 1) }}",
    "{{ '{:>2000000000}'.format(1) }}",
    "{{ '{:>{}}'.format(1, 2000000000) }}",
    "{{ 'a'.ljust(2000000000) }}",
    "{{ 'a\n' | indent(1000000000) }}",
    "{{ messages | tojson(indent=1000000000) }}",
    "{{ 1.5 | round(1000000000, 'floor') }}",
    "{{ lipsum(n=1000000) }}",
    "{{ strftime_now('%Y' * 1000) }}",
)
REFUSED = (
    ("{{ 'a' | center(3000000000) }}", "does not parse, line 1: No filter named 'center'"),
    ("{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}", "cannot be compiled: RecursionError"),
    ("{{ x" + "|trim" * 10_000 + " }}", "cannot be compiled: RecursionError"),
    ("{% break %}", "cannot be compiled: SyntaxError: 'break' outside loop"),
    ("{{ " + "9" * 5_000 + " }}", "cannot be compiled: ValueError: Exceeds the limit"),
    ("{% a\x1b" + "b" * 300 + " %}", "does not parse, line 1"),
    ("x" * (SOURCE_CHARACTERS + 1), "has 131,073 characters; the limit is 131,072"),
)


@pytest.mark.parametrize("source", HARMLESS)
def test_a_harmless_template_renders_as_in_jinja2(source: str) -> None:
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    assert ChatTemplate(source, {}, "f").render(MESSAGES, None) == plain.from_string(source).render(messages=MESSAGES)


@pytest.mark.parametrize("source", FAILING)
def test_a_costly_template_fails_within_its_allowance(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_sandbox, "STEPS", 200_000)
    template = ChatTemplate(source, {}, "f")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidField, match="chat template fails on these messages"):
        template.render(MESSAGES, None)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 8 * PRODUCED
    assert ChatTemplate("{{ messages[0].content }}", {}, "f").render(MESSAGES, None) == "Be brief."


@pytest.mark.parametrize(("source", "message"), REFUSED)
def test_a_template_that_is_no_program_is_refused_in_one_line(source: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ChatTemplate(source, {}, "f: chat_template")
    assert refused.value.message.startswith(f"f: chat_template {message}")
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 400
