"""Which settings of a chat model give the most answers that a person would accept?

    slipstream engine --model FILE --port 8300
    python -m benchmarks.answers ask http://127.0.0.1:8300/v1 answers.json --key "$(cat .slipstream/token)" \
        --model NAME --setting 'old={"temperature": 0.2, "top_p": 0.9}' --setting 'new={}' > sheet.md
    python -m benchmarks.answers count answers.json verdicts.txt

`ask` puts the questions of `answer_questions.jsonl` with each setting: fields of the request, and `before`, messages
that precede the question. By default it asks thirty by which nothing was chosen; `--choose` asks the sixty others. It
prints a sheet of all answers in random order without their settings, equal answers to a question once. A sandbox runs
the code of an answer where the question says the results. A person writes the verdicts, a line for each number of the
sheet: `12 s` for sensible (a person would accept it as a correct and useful answer), `p` for partly, `w` for wrong.
`count` needs all of them. The ratio is that of sensible answers, the last setting's over the first one's, with a 95 %
interval from resampled questions. Last line: JSON.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import random
import re
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from evals.sandbox.sandbox import Program, Sandbox

QUESTIONS = Path(__file__).with_name("answer_questions.jsonl")
VERDICTS = {"s": "sensible", "p": "partly", "w": "wrong"}
AT_ONCE = 32
TIMEOUT_S = 900.0
RESAMPLES = 2_000
PRINTING = """_said = []
def print(*words, **_):
    _said.extend(map(str, words))
{}
def printed():
    return _said
"""
"""A program whose printed words a test can read."""


class Question(msgspec.Struct, frozen=True):
    """A question, with the fields of a program's check if it has one."""

    kind: str
    question: str
    held_out: bool
    says: str | None = None
    """A pattern that every right answer contains."""
    cases: list[tuple[list[Any], Any]] = []
    """Arguments of the function that the answer defines last, and its result."""
    unordered: bool = False
    """Whether the order of the result does not matter."""
    prints: list[str] | None = None
    """Words that the answer's program prints."""


class Answer(msgspec.Struct, frozen=True):
    """An answer with one setting."""

    setting: str
    question: str
    kind: str
    text: str
    tokens: int
    cut: bool
    """Whether it ended at the token limit."""
    check: str
    """`passed`, the reason of a failure, or empty if a program cannot decide."""
    number: int = 0
    """Its number on the sheet."""


def questions(held_out: bool) -> list[Question]:
    """The questions of one part, in the file's order."""
    decoder = msgspec.json.Decoder(Question)
    every = [decoder.decode(line) for line in QUESTIONS.read_bytes().splitlines()]
    return [question for question in every if question.held_out is held_out]


def checked(question: Question, text: str, sandbox: Sandbox) -> str:
    """The check of an answer: `passed`, the reason of a failure, or empty if no program can decide."""
    if question.says is not None:
        return "passed" if re.search(question.says, text) else f"does not say {question.says}"
    if not question.cases and question.prints is None:
        return ""
    blocks = re.findall(r"```\w*\n(.*?)(?:```|$)", text, re.DOTALL) or [text]
    try:
        body = ast.parse(blocks[0]).body
    except SyntaxError:
        return "is no Python"
    names = [statement.name for statement in body if isinstance(statement, ast.FunctionDef)]
    code, test = blocks[0], "def check(candidate):\n"
    if question.prints is not None:
        names, code = ["printed"], PRINTING.format(code)
        test += f"    assert candidate() == {question.prints!r}\n"
    if not names:
        return "defines no function"
    for arguments, result in question.cases:
        call = f"candidate(*{arguments!r})"
        test += f"    assert {f'sorted({call})' if question.unordered else call} == {result!r}, {arguments!r}\n"
    verdict = sandbox.judge(Program((code,), names[-1], test))
    return "passed" if verdict.passed else verdict.why[-120:]


async def ask(url: str, key: str, model: str, settings: dict[str, dict[str, Any]], held_out: bool) -> list[Answer]:
    """The answers, setting by setting. Raises aiohttp.ClientError."""
    slots, sandbox = asyncio.Semaphore(AT_ONCE), Sandbox()

    async def one(setting: str, question: Question) -> Answer:
        fields = dict(settings[setting])
        messages = [*fields.pop("before", []), {"role": "user", "content": question.question}]
        async with (
            slots,
            client.post(f"{url}/chat/completions", json={"model": model, "messages": messages} | fields) as response,
        ):
            if response.status != 200:
                raise aiohttp.ClientError(f"{url}: HTTP {response.status}: {(await response.text())[:500]}")
            body = await response.json()
        choice = body["choices"][0]
        text = choice["message"]["content"] or ""
        check = await asyncio.to_thread(checked, question, text, sandbox)
        tokens, cut = body["usage"]["completion_tokens"], choice["finish_reason"] == "length"
        return Answer(setting, question.question, question.kind, text, tokens, cut, check)

    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}, timeout=timeout) as client:
        every = [(setting, question) for setting in settings for question in questions(held_out)]
        return await asyncio.gather(*(one(*each) for each in every))


def numbered(answers: list[Answer], seed: int) -> list[Answer]:
    """The answers with the numbers of a sheet; equal answers to a question share a number."""
    distinct = sorted({(answer.question, answer.text) for answer in answers})
    random.Random(seed).shuffle(distinct)
    numbers = {each: number for number, each in enumerate(distinct, 1)}
    return [msgspec.structs.replace(answer, number=numbers[answer.question, answer.text]) for answer in answers]


def sheet(answers: list[Answer]) -> str:
    """The sheet in Markdown, by number."""
    by_number = {answer.number: answer for answer in answers}
    parts = []
    for number, answer in sorted(by_number.items()):
        end = f"cut at {answer.tokens} tokens" if answer.cut else ""
        notes = "; ".join(note for note in (answer.check, end) if note)
        parts.append(f"## {number}. {answer.question}\n\n{answer.text}\n\n{f'({notes})' if notes else ''}")
    return "\n".join(parts)


def read_verdicts(text: str, answers: list[Answer]) -> dict[int, str]:
    """The verdicts by number. Raises SystemExit, naming an invalid line or the numbers without a verdict."""
    verdicts: dict[int, str] = {}
    for line in text.splitlines():
        if not (found := re.fullmatch(r"\s*(\d+)\s+([spw])\b.*", line)):
            raise SystemExit(f"{line!r} is no verdict; write a number of the sheet and one of s, p and w, as in: 12 s")
        verdicts[int(found[1])] = found[2]
    if lacking := sorted({answer.number for answer in answers} - verdicts.keys()):
        raise SystemExit(f"no verdict for {', '.join(map(str, lacking))}")
    return verdicts


def count(answers: list[Answer], verdicts: dict[int, str]) -> dict[str, Any]:
    """Print the table; returns the figures."""
    settings = list(dict.fromkeys(answer.setting for answer in answers))
    of = {setting: [answer for answer in answers if answer.setting == setting] for setting in settings}
    figures: dict[str, Any] = {}
    print(f"{'setting':<16}{'sensible':>9}{'partly':>9}{'wrong':>9}{'cut':>5}{'tokens':>8}  sensible by kind")
    for setting, own in of.items():
        counts = Counter(verdicts[answer.number] for answer in own)
        kinds = Counter(answer.kind for answer in own if verdicts[answer.number] == "s")
        row = {name: counts[letter] for letter, name in VERDICTS.items()}
        figures[setting] = row | {"cut": sum(answer.cut for answer in own)}
        tokens = statistics.median(answer.tokens for answer in own)
        shares = ", ".join(f"{kind} {kinds[kind]}" for kind in dict.fromkeys(answer.kind for answer in own))
        cells = "".join(f"{each:>9}" for each in row.values())
        print(f"{setting:<16}{cells}{figures[setting]['cut']:>5}{tokens:>8.0f}  {shares}")
    first, last = (
        [verdicts[answer.number] == "s" for answer in of[setting]] for setting in (settings[0], settings[-1])
    )
    generator, indices = random.Random(0), range(len(first))
    ratios = []
    for _ in range(RESAMPLES):
        drawn = generator.choices(indices, k=len(first))
        ratios.append(sum(last[at] for at in drawn) / max(1, sum(first[at] for at in drawn)))
    ratios.sort()
    low, high = ratios[RESAMPLES // 40], ratios[-RESAMPLES // 40]
    return figures | {"ratio": round(sum(last) / max(1, sum(first)), 3), "interval": [round(low, 3), round(high, 3)]}


def main() -> None:
    """Ask and print the sheet, or count its verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    asking = commands.add_parser("ask", help="print the sheet")
    asking.add_argument("url", help="with /v1")
    asking.add_argument("answers", type=Path, help="file for the answers")
    asking.add_argument("--key", default="none")
    asking.add_argument("--model", required=True)
    asking.add_argument("--setting", action="append", required=True, metavar="NAME=JSON")
    asking.add_argument("--choose", action="store_true", help="the questions to choose by")
    asking.add_argument("--seed", type=int, default=0, help="of the sheet's order")
    counting = commands.add_parser("count", help="count verdicts")
    counting.add_argument("answers", type=Path)
    counting.add_argument("verdicts", type=Path)
    options = parser.parse_args()
    if options.command == "ask":
        settings = {name: json.loads(fields) for name, _, fields in (each.partition("=") for each in options.setting)}
        asked = ask(options.url.rstrip("/"), options.key, options.model, settings, not options.choose)
        answers = numbered(asyncio.run(asked), options.seed)
        options.answers.write_bytes(msgspec.json.format(msgspec.json.encode(answers)))
        print(sheet(answers))
    else:
        answers = msgspec.json.decode(options.answers.read_bytes(), type=list[Answer])
        figures = count(answers, read_verdicts(options.verdicts.read_text(), answers))
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
