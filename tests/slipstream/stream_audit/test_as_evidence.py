"""What a diagnosis takes from an audit: every finding, and why what was not judged was not."""

from __future__ import annotations

import msgspec

from slipstream.diagnosis_audit import audit_of
from tests.slipstream.stream_audit.networks import measured
from tests.slipstream.stream_audit.test_rules import answered, connected


def test_a_clean_path_is_judged_and_nothing_is_found() -> None:
    audit = audit_of(measured())
    assert (audit.findings, audit.unjudged) == ((), "")


def test_a_certificate_that_is_not_accepted_is_kept() -> None:
    refused = msgspec.structs.replace(connected(untrusted="self-signed certificate"), short=(), slow=None, fast=None)
    audit = audit_of(refused)
    [finding] = audit.findings
    assert (finding.code, finding.keeps_out, finding.holds_back) == ("certificate_untrusted", True, False)
    assert audit.unjudged == "no stream came"


def test_a_stream_that_broke_off_loses_no_other_finding() -> None:
    whole = answered(connection="close", content_encoding="gzip")
    assert whole.fast is not None
    broken = msgspec.structs.replace(
        whole,
        fast=msgspec.structs.replace(whole.fast, complete=False, received=whole.fast.received[:3], failure="reset"),
    )
    assert (
        {each.code for each in audit_of(broken).findings} == {each.code for each in audit_of(whole).findings} != set()
    )
    assert audit_of(broken).unjudged == "a stream broke off: 3 of 100 events came (reset)"
