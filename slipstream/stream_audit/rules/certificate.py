"""Detects a certificate that clients refuse, or will refuse soon."""

from __future__ import annotations

from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.verdict import Verdict, clear, finding, not_enough

CHECK = "certificate"
UNTRUSTED = "certificate_untrusted"
SOON_DAYS = 14.0
"""Automatic renewal replaces certificates a month before their end."""
FIX_EXPIRY = "Renew it, and find out why it was not renewed automatically (certbot renews 30 days before the end)."
FIX_TRUST = (
    "Use a certificate for this name from an authority that clients trust, with its intermediate certificates in "
    "the file; for an authority of your own give clients (and this command: --ca-file) its certificate."
)


def judge(measured: Measured) -> Verdict:
    """Judge the server's certificate."""
    tls = measured.connection.tls
    if tls is None:
        return not_enough(CHECK, "plain HTTP")
    details = f"issued by {tls.issuer}, valid until {tls.expires_at}"
    if tls.untrusted:
        return finding(
            CHECK,
            UNTRUSTED,
            f"Not accepted: {tls.untrusted} ({details}). The key was not sent, and nothing else was measured.",
            FIX_TRUST,
        )
    if tls.valid_days < SOON_DAYS:
        return finding(CHECK, "certificate_expires", f"It ends in {tls.valid_days:.1f} days ({details}).", FIX_EXPIRY)
    return clear(CHECK, f"{details}, {tls.valid_days:.0f} days")
