"""WSGI middleware: 401 before the body is read, 403 where the token is not for the group of the request."""

from __future__ import annotations

import io
import logging
import threading
from typing import Any, Callable, Iterable

from .keycache import KeyCache
from .rejection import REASONS, Rejection
from .request import AdmissionRequest, ReviewError
from .verify import MAX_TOKEN, Expected, Verifier

log = logging.getLogger("webhookauth")

MAX_REVIEW = 8 * 1024 * 1024
IDENTITY = "webhookauth.identity"
"""The key of the WSGI environment under which the application finds the `Identity` of the caller."""
_STATUS = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 413: "Content Too Large", 503: "Service Unavailable"}


def bearer_token(value: str | None) -> str:
    """The bearer token of an Authorization header. WSGI servers join repeated headers by commas, which no token has."""
    if not value:
        raise Rejection("missing", "no bearer token")
    if len(value) > MAX_TOKEN + 64:
        raise Rejection("oversize", f"{len(value)} bytes")
    if "," in value:
        raise Rejection("malformed", "more than one Authorization header")
    scheme, _, token = value.partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not token:
        raise Rejection("missing", "no bearer token")
    return token


class Counts:
    """How many requests were accepted, and how many were rejected for which reason. In mode observe the rejected ones passed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.accepted = 0
        self.rejected = dict.fromkeys(REASONS, 0)

    def accept(self) -> None:
        with self._lock:
            self.accepted += 1

    def reject(self, reason: str) -> None:
        with self._lock:
            self.rejected[reason] += 1

    def to_prometheus(self) -> str:
        """The text that Prometheus reads."""
        lines = [
            "# HELP webhook_auth_accepted_total Requests with a token that fits.",
            "# TYPE webhook_auth_accepted_total counter",
            f"webhook_auth_accepted_total {self.accepted}",
            "# HELP webhook_auth_rejected_total Requests without one, by reason; in mode observe they passed.",
            "# TYPE webhook_auth_rejected_total counter",
            *(f'webhook_auth_rejected_total{{reason="{reason}"}} {count}' for reason, count in self.rejected.items()),
        ]
        return "\n".join(lines) + "\n"


class Middleware:
    """Stands in front of the WSGI application of one webhook.

    Each path of a server is a webhook of its own, with an audience of its own; they share the keys.
    """

    def __init__(
        self, application: Callable[..., Iterable[bytes]], expected: Expected, keys: KeyCache, mode: str = "require"
    ) -> None:
        if mode not in ("off", "observe", "require"):
            raise ValueError(f"{mode!r} is no mode: it is off, observe or require")
        self._application = application
        self._verifier = Verifier(expected)
        self._keys = keys
        self._mode = mode
        self.counts = Counts()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ.pop(IDENTITY, None)
        if self._mode == "off":
            return self._application(environ, start_response)
        identity = None
        try:
            token = bearer_token(environ.get("HTTP_AUTHORIZATION"))
            identity = self._keys.authenticate(self._verifier, token)
        except Rejection as rejection:
            if self._refuses(rejection):
                return _answer(rejection, start_response)
        body = _read(environ)
        if body is None:
            return _plain(413, start_response)
        try:
            request = AdmissionRequest.parse(body)
            if identity is not None:
                identity.check(request)
                self.counts.accept()
                environ[IDENTITY] = identity
        except ReviewError:
            if self._mode == "require":
                return _plain(400, start_response)
        except Rejection as rejection:
            if self._refuses(rejection):
                return _answer(rejection, start_response)
        environ["wsgi.input"] = io.BytesIO(body)
        environ["CONTENT_LENGTH"] = str(len(body))
        return self._application(environ, start_response)

    def _refuses(self, rejection: Rejection) -> bool:
        self.counts.reject(rejection.reason)
        log.warning("webhook caller refused: reason=%s detail=%s mode=%s", rejection.reason, rejection.detail, self._mode)
        return self._mode == "require"


def _read(environ: dict[str, Any]) -> bytes | None:
    try:
        length = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return None
    if not 0 <= length <= MAX_REVIEW:
        return None
    return environ["wsgi.input"].read(length)


def _plain(status: int, start_response: Callable[..., Any], headers: Iterable[tuple[str, str]] = ()) -> Iterable[bytes]:
    start_response(f"{status} {_STATUS[status]}", [("Content-Length", "0"), *headers])
    return [b""]


def _answer(rejection: Rejection, start_response: Callable[..., Any]) -> Iterable[bytes]:
    challenge = "Bearer" if rejection.reason == "missing" else 'Bearer error="invalid_token"'
    headers = [("WWW-Authenticate", challenge)] if rejection.status == 401 else []
    return _plain(rejection.status, start_response, headers)
