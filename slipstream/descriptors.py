"""Raises the limit of open files: each connection is one, and the limit of shells and service managers is too low."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)


def raise_descriptor_limit() -> int:
    """Raise this process's soft limit of open files to its hard limit; return and log the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:  # some systems enforce a lower limit than they report
            logger.warning("the limit of open files stays at %d: %s", soft, error)
    logger.info("up to %d files and connections may be open", soft)
    return soft
