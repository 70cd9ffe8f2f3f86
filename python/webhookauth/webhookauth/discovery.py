"""Keys by OpenID discovery over HTTPS."""

from __future__ import annotations

import ssl
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .keycache import KeyCache
from .keys import MAX_DOCUMENT, KeySet
from .rejection import excerpt
from .strict import NotPlain, read_object

PROVIDER_PATH = "/.well-known/openid-configuration"
JWKS_PATH = "/openid/v1/jwks"
JWKS_TYPE = "application/jwk-set+json"
API_SERVER = "https://kubernetes.default.svc"
POD_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT = 5


class DiscoveryError(Exception):
    """Why a provider document is of no use: `reason` is malformed, issuer or address."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class IssuerError(DiscoveryError):
    """A provider document is another issuer's."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__("issuer", f"the issuer is {excerpt(found)}, but {expected!r} is expected")


def parse_provider(document: bytes, issuer: str) -> str:
    """Reads the OpenID provider document of an issuer and returns the address of its keys."""
    try:
        if len(document) > MAX_DOCUMENT:
            raise NotPlain("too long")
        provider = read_object(document)
    except NotPlain as error:
        raise DiscoveryError("malformed", f"the provider document is malformed: {error}") from None
    found, keys = provider.get("issuer"), provider.get("jwks_uri")
    if not isinstance(found, str) or not isinstance(keys, str):
        raise DiscoveryError("malformed", "the provider document is malformed")
    if found != issuer:
        raise IssuerError(found, issuer)
    if not keys.startswith("https://"):
        raise DiscoveryError("address", "the provider document names no https address of keys")
    return keys


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class Discovery:
    """Fetches the keys of an issuer."""

    issuer: str
    """The issuer that the provider document must name."""
    server: str = ""
    """The server to ask for both documents. If it is empty, the issuer is asked, and its document says where the keys are."""
    ca_file: str | None = None
    """PEM certificates that verify the server; the system's if None."""
    token_file: str | None = None
    """The bearer token for `server`. It is read each time, because it is renewed, and sent nowhere else."""

    def fetch(self) -> KeySet:
        base = (self.server or self.issuer).rstrip("/")
        address = parse_provider(self._get(base + PROVIDER_PATH, "application/json"), self.issuer)
        if self.server:
            address = base + JWKS_PATH
        return KeySet.parse(self._get(address, JWKS_TYPE))

    def _get(self, address: str, accept: str) -> bytes:
        url = urllib.parse.urlsplit(address)
        if url.scheme != "https":
            raise DiscoveryError("address", f"{address!r} is no https address")
        request = urllib.request.Request(address, headers={"Accept": accept})
        server = urllib.parse.urlsplit(self.server)
        if self.token_file and (server.scheme, server.netloc) == (url.scheme, url.netloc):
            request.add_unredirected_header("Authorization", "Bearer " + Path(self.token_file).read_text("ascii").strip())
        handlers = [
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=self.ca_file)),
            urllib.request.ProxyHandler({}),
            _NoRedirects(),
        ]
        with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT) as response:
            return response.read(MAX_DOCUMENT + 1)


def in_cluster(issuer: str) -> KeyCache:
    """The keys of the cluster that this pod runs in, from its API server, with the pod's own service account."""
    return at_server(issuer, API_SERVER, str(POD_FOLDER / "ca.crt"), str(POD_FOLDER / "token"))


def at_server(issuer: str, server: str, ca_file: str, token_file: str | None) -> KeyCache:
    """The keys of an issuer from an API server outside of the cluster, with the token of a user that may read the discovery documents."""
    return KeyCache(Discovery(issuer, server, ca_file, token_file).fetch)
