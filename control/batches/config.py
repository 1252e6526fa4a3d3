"""Where files of batches are stored, and the limits of files and batches: OpenAI's where it has one."""

from __future__ import annotations

from pathlib import Path

import msgspec

from contracts.errors import ConfigError

FILE_BYTES = 200_000_000
ORGANIZATION_BYTES = 20_000_000_000
"""Most bytes of an organization's files together."""
MAX_FILES = 50_000
"""Most files of an organization, outputs of its batches included: a tiny file costs a row and a block of a disk."""
MAX_LINES = 50_000
LINE_BYTES = 10_000_000
MAX_UNFINISHED = 100
"""Batches of an organization that have not ended."""
WINDOW_S = 86_400
KEPT_S = 30 * 86_400
"""How long a file is kept, unless `expires_after` says less."""
MIN_KEPT_S = 3_600
S3_SCHEME = "s3://"


class BatchesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files and batches."""

    storage: str = ""
    """Where files are: an absolute folder, or `s3://bucket/prefix` (needs `pip install slipstream[s3]`; credentials
    from the usual `AWS_…` variables). All gateways and workers must reach it. Empty: `files` in the data folder."""
    s3_endpoint: str = ""
    """URL of an S3 server other than Amazon's, such as `http://minio:9000`."""

    def check(self) -> None:
        """Raise ConfigError for a storage that is neither a folder nor a bucket."""
        where = self.storage
        if where.startswith(S3_SCHEME):
            if not where.removeprefix(S3_SCHEME).partition("/")[0]:
                raise ConfigError(
                    f"batches.storage: {where!r} names no bucket; write s3://bucket or s3://bucket/prefix",
                    param="batches.storage",
                )
        elif where and not Path(where).is_absolute():
            raise ConfigError(
                f"batches.storage: {where!r} is neither an absolute folder nor s3://bucket/prefix",
                param="batches.storage",
            )
        if self.s3_endpoint and not where.startswith(S3_SCHEME):
            raise ConfigError(
                "batches.s3_endpoint: it has no effect unless batches.storage is s3://bucket/prefix; leave it out",
                param="batches.s3_endpoint",
            )
