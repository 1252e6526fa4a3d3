"""Serves the console's files, which `npm run build` writes to `dist/`: they are read once and sent compressed, with a
content policy that allows only their own sources."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

from contracts.errors import NotFound

DIST = Path(__file__).parent / "dist"
PATH = "/console"
INDEX = "index.html"
HASHED = "assets/"
"""The names of these files contain a digest of the content, so the content of a name never changes."""
COMPRESSED_FROM_BYTES = 512
# Text is sent as UTF-8.
TYPES: Mapping[str, str] = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class PageFile(msgspec.Struct, frozen=True):
    """One file. compressed: None if that saves nothing."""

    body: bytes
    compressed: bytes | None
    kind: str
    etag: str
    caching: str


class Pages:
    """All files by their paths below /console/."""

    def __init__(self, files: Mapping[str, PageFile]) -> None:
        self._files = files

    @classmethod
    def read(cls, folder: Path) -> Pages:
        """The files of a folder; none if it does not exist."""
        found = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in TYPES)
        return cls({path.relative_to(folder).as_posix(): _file(path, folder) for path in found})

    def find(self, path: str) -> PageFile:
        """The file with this path; the page itself for paths that it handles. Raises NotFound."""
        found = self._files.get(path)
        if found is None and "." not in PurePosixPath(path).name and not path.startswith(("api/", HASHED)):
            found = self._files.get(INDEX)
        if found is None:
            hint = "" if self._files else " The console is not built here: run `npm run build` in its folder."
            raise NotFound(f"The console has no file {path[:200]!r}.{hint}")
        return found


def pages_route(pages: Pages) -> HTTPRouteHandler:
    """The route of the console and of every address below it that the page handles."""

    async def show(request: Request[Any, Any, State]) -> Response[bytes]:
        file = pages.find(request.url.path.removeprefix(PATH).strip("/") or INDEX)
        headers = {**HEADERS, "cache-control": file.caching, "etag": file.etag, "vary": "accept-encoding"}
        if file.etag in request.headers.get("if-none-match", ""):
            return Response(b"", status_code=304, headers=headers)
        body = file.body
        if file.compressed is not None and _takes_gzip(request.headers.get("accept-encoding", "")):
            body, headers["content-encoding"] = file.compressed, "gzip"
        return Response(body, headers=headers, media_type=file.kind)

    paths = [PATH, f"{PATH}/{{path:path}}"]
    return HTTPRouteHandler(paths, http_method=["GET", "HEAD"], name=PATH)(show)


def _takes_gzip(header: str) -> bool:
    offered = [each.partition(";") for each in header.lower().split(",")]
    return any(
        name.strip() in ("gzip", "*") and "q=0" not in rest.replace(" ", "").split(";") for name, _, rest in offered
    )


def _file(path: Path, folder: Path) -> PageFile:
    body, name = path.read_bytes(), path.relative_to(folder).as_posix()
    compressed = gzip.compress(body, 9, mtime=0) if len(body) >= COMPRESSED_FROM_BYTES else body
    caching = "public, max-age=31536000, immutable" if name.startswith(HASHED) else "no-cache"
    return PageFile(
        body,
        compressed if len(compressed) < len(body) else None,
        TYPES[path.suffix],
        f'"{hashlib.sha256(body).hexdigest()[:32]}"',
        "no-store" if name == INDEX else caching,
    )
