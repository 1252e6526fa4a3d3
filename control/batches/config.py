"""Storage and limits of files and batches. A limit is OpenAI's if OpenAI has one."""

from __future__ import annotations

from pathlib import Path

import msgspec

from contracts.errors import ConfigError

FILE_BYTES = 200_000_000
ORGANIZATION_BYTES = 20_000_000_000
"""Limit of the total size of an organization's files."""
MAX_FILES = 50_000
"""Limit of an organization's files, outputs of its batches included: even a tiny file costs a row and a disk block."""
MAX_LINES = 50_000
LINE_BYTES = 10_000_000
MAX_UNFINISHED = 100
"""Limit of an organization's batches that have not ended."""
WINDOW_S = 86_400
KEPT_S = 30 * 86_400
"""How long a file is kept, unless `expires_after` is shorter."""
MIN_KEPT_S = 3_600
S3_SCHEME = "s3://"


class BatchesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files and batches."""

    storage: str = ""
    """Location of files: an absolute folder, or `s3://bucket/prefix` (needs `pip install slipstream[s3]`, and
    credentials from the usual `AWS_…` variables). All gateways and workers must reach it. Empty: `files` in the data
    folder."""
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
