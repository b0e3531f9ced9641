"""The page: one file without anything from elsewhere, allowed to run its own script only."""

import base64
import hashlib
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from weft.serve.responses import RouteTable
from weft.serve.service import Service


async def page(request: Request, service: Service) -> Response:
    """Return the page; it has no data of its own, and calls the API like any client."""
    body, policy = _read_page()
    return Response(body, headers={"content-security-policy": policy}, media_type="text/html")


@cache
def _read_page() -> tuple[bytes, str]:
    """Return the page and the policy that allows its script and nothing else."""
    body = (Path(__file__).parent.parent / "page.html").read_bytes()
    script = body.split(b"<script>", 1)[1].split(b"</script>", 1)[0]
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return body, policy


ROUTES: RouteTable = [("GET", "/", page)]
