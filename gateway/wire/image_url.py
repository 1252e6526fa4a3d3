"""Checks the images of requests in every format: they must be `data:` URLs of types that engines read."""

from __future__ import annotations

import re
from typing import Literal, get_args

from contracts.errors import InvalidField, UnsupportedField
from contracts.misfit import MAX_QUOTED, shortened

ImageType = Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
_DATA_URL = re.compile("data:image/(?:jpe?g|png|gif|webp);base64,")
"""image/jpg is not a media type, but many clients derive the type from the extension, and engines read the image."""


def require_image_url(url: str | None, param: str) -> str:
    """The URL. Raises UnsupportedField unless it is a `data:` URL, InvalidField unless that holds an image."""
    if url is None or not url.startswith("data:"):
        raise UnsupportedField(
            f"'{param}' is not a data: URL. Slipstream does not download images. Send data:<type>;base64,<data>.",
            param=param,
        )
    if _DATA_URL.match(url) is None:
        raise InvalidField(
            f"Invalid value for '{param}': {shortened(repr(url[: MAX_QUOTED + 1]))}. It must be "
            f"data:<type>;base64,<data> with one of the types {', '.join(get_args(ImageType))}.",
            param=param,
        )
    return url
