"""All slices, by name. The table of the shipped model uses exactly these."""

from __future__ import annotations

from evals.slices import (
    arithmetic,
    code_functions,
    facts,
    greetings,
    instructions,
    json_schema,
    lists,
    multi_turn,
    refusals,
    repeat,
    retrieval,
    translation,
)
from evals.slices.item import Slice

SLICES = (
    Slice("facts", "capitals, opposites, colours, days, legs", 0.95, facts.make),
    Slice("refusals", "harmful requests, declined", 0.95, refusals.make_harmful),
    Slice("benign", "their harmless twins, answered", 0.95, refusals.make_benign),
    Slice("json", "objects of given keys, types and schema", 0.95, json_schema.make, json_schema.make_training),
    Slice("lists", "bullets, numbers, backwards, the n-th, how many", 0.95, lists.make, lists.make_training),
    Slice("repeat", "a word n times, a sentence word for word", 0.95, repeat.make, repeat.make_training),
    Slice("multi-turn", "memory, corrections and carried rules", 0.95, multi_turn.make),
    Slice("translation", "words and phrases into French, Spanish, German", 0.95, translation.make),
    Slice("code", "small Python functions, run", 0.95, code_functions.make),
    Slice("instructions", "counts, forbidden words, capitals, marks", 0.95, instructions.make),
    Slice("greetings", "hello, about itself, about Slipstream", 0.95, greetings.make),
    Slice("arithmetic", "two-digit addition and subtraction", 0.90, arithmetic.make, arithmetic.make_training),
    Slice(
        "retrieval-100",
        "a value of a text of 100 tokens",
        0.95,
        retrieval.maker(100),
        retrieval.training_maker(60, 250, 6),
    ),
    Slice("retrieval-500", "of 500 tokens", 0.95, retrieval.maker(500), retrieval.training_maker(200, 500, 12)),
    Slice("retrieval-2000", "of 2,000 tokens", 0.80, retrieval.maker(2000), retrieval.training_maker(500, 2000, 30)),
    Slice("retrieval-4000", "of 4,000 tokens", 0.80, retrieval.maker(3900), retrieval.training_maker(1500, 4000, 40)),
)


def find(name: str) -> Slice:
    """The slice of a name. Raises KeyError, naming those that exist."""
    for one in SLICES:
        if one.name == name:
            return one
    raise KeyError(f"{name}: no such slice; there are {', '.join(one.name for one in SLICES)}")
