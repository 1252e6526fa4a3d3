"""The limit of open files: every connection is one, and what shells and service managers give is made for less."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)


def raise_descriptor_limit() -> int:
    """Raise this process' soft limit of open files to its hard limit; returns and logs what is in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:  # some systems have a limit below the one they report
            logger.warning("the limit of open files stays at %d: %s", soft, error)
    logger.info("up to %d files and connections may be open", soft)
    return soft
