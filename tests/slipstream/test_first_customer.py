"""The page "Your first customer", run from top to bottom as it stands."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
import pytest

from control.webhooks.signature import headers, new_secret
from slipstream.fetched_model import NAME
from tests.deployment import ROOT
from tests.slipstream.guide import Block, Reader, reader, shell_blocks

PAGE = ROOT / "docs" / "guides" / "first-customer.md"
USAGE = 'api GET "organizations/$ORG/usage/events'
INVOICE = Block(PAGE.name, 0, "sh", "api GET organizations/$ORG/invoices/$(date -u +%Y-%m)\n", "")


@pytest.mark.nightly
async def test_the_page_gives_a_customer_a_key_a_budget_an_alert_and_an_invoice() -> None:
    said: list[str] = []
    async with reader() as person:
        # no test fetches a model
        person.replaced[NAME] = "slipstream-chat"
        for block in shell_blocks(PAGE):
            if block.text.startswith(USAGE):
                answers = len(set(re.findall(r'"id":"(chatcmpl-\w+)"', "".join(said))))
                await _in_the_ledger(person, answers)
            said.append(await person.paste(block))
    whole = "".join(said)
    assert 'verified {"id":' in whole
    assert '"type":"budget.exhausted"' in whole
    assert '"code":"insufficient_quota"' in whole
    (totals,) = _objects(whole, '{"data":[{"hour":')
    (invoice,) = _objects(said[-2], '{"organization_id":')
    assert sum(each["requests"] for each in totals["data"]) == invoice["requests"] == answers
    assert invoice["amount_micro"] >= 300 - 60, "the budget was spent, up to what one more question can cost"
    lines = re.findall(r"^\S+ +\S+ +slipstream-chat +chat ", whole, re.M)
    assert len(lines) >= 2, "a line of the invoice for the time without a price, and one with it"


def test_the_pages_receiver_takes_what_we_sign_and_nothing_else() -> None:
    found = re.search(r"cat > receiver.py <<'END'\n(.*?)^END$", PAGE.read_text(), re.M | re.S)
    assert found is not None
    secret, body, now = new_secret(), b'{"type":"webhook.test"}', int(time.time())
    names: dict[str, Any] = {"__name__": "receiver"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEBHOOK_SECRET", secret)
        exec(compile(found.group(1), "receiver.py", "exec"), names)
    genuine = names["genuine"]
    assert genuine(headers("e", now, body, [secret]), body)
    assert genuine(headers("e", now, body, [new_secret(), secret]), body), "one of two during a rotation"
    assert not genuine(headers("e", now, body, [new_secret()]), body)
    assert not genuine(headers("e", now, body, [secret]), body + b" ")
    assert not genuine(headers("e", now - 400, body, [secret]), body)
    assert not genuine({**headers("e", now, body, [secret]), "webhook-id": "f"}, body)
    assert not genuine({}, body)


async def _in_the_ledger(person: Reader, answers: int) -> None:
    """Answers reach it a moment after they end."""
    while _objects(await person.paste(INVOICE), '{"organization_id":')[0]["requests"] < answers:
        pass


def _objects(said: str, begin: str) -> list[Any]:
    """The lines that begin so, decoded."""
    return [msgspec.json.decode(line) for line in said.splitlines() if line.startswith(begin)]
