"""Reads requests' measurements for the rules of `diagnosis.findings`, and changes' expected effects."""
