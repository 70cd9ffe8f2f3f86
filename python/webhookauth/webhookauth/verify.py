"""A token, a time and a key set, and who is calling. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .keys import ALGORITHMS, KeySet
from .rejection import Rejection, excerpt
from .request import AdmissionRequest
from .strict import NotPlain, decode_base64, read_object

VALIDATING = "ValidatingWebhookConfiguration"
MUTATING = "MutatingWebhookConfiguration"
EVERY_GROUP = "*"
MAX_TOKEN = 16 * 1024
MAX_LIFETIME = 600
MAX_SKEW = 300
_LATEST = 9_000_000_000_000_000
# The names of the binding and of the group: those of Kubernetes 1.37, then those of the KEP.
_BINDINGS = {
    VALIDATING: ("validatingwebhookconfiguration", "validatingWebhookConfiguration"),
    MUTATING: ("mutatingwebhookconfiguration", "mutatingWebhookConfiguration"),
}
_GROUPS = (
    ("attestations", "admissionReviewAPIGroups"),
    ("attestationClaims", "webhook-authentication.k8s.io/allowedAPIGroup"),
)


@dataclass(frozen=True)
class Expected:
    """Which tokens a webhook accepts."""

    issuers: list[str]
    """The issuers, exactly as in the tokens: the API server's --service-account-issuer, or several while that changes."""
    audiences: list[str]
    """The audiences of the webhook: see `audience`."""
    kind: str
    """The kind of the webhook's configuration: VALIDATING or MUTATING."""
    name: str | None = None
    """The name of the configuration, if tokens bound to others are to be refused."""
    uid: str | None = None
    """The uid of the configuration, if tokens bound to others are to be refused."""
    subjects: list[str] = field(default_factory=list)
    """The accounts that are let in, as system:serviceaccount:kube-system:webhook-auth; all if there are none."""
    skew_seconds: int = 60
    """How far clocks may differ, at most 300."""


@dataclass(frozen=True)
class Configuration:
    """The webhook configuration that a token is bound to."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True)
class Identity:
    """Whose token it is and what for: everything about it but whether it fits a request."""

    subject: str
    issuer: str
    audience: str
    configuration: Configuration
    group: str
    """The API group that the bearer may ask about: `*`, or one group; the empty string is the core group."""
    id: str
    expires: int

    def check(self, request: AdmissionRequest) -> None:
        """Raises a Rejection unless the token is for the API group that the request is about."""
        if self.group == EVERY_GROUP or request.group() == self.group:
            return
        raise Rejection(
            "group",
            f"the token of {self.subject!r} is for {self.group!r}, the request is about resource group "
            f"{excerpt(request.resource_group)} and kind group {excerpt(request.kind_group)}",
        )


class Verifier:
    """Verifies the tokens that one webhook is sent."""

    def __init__(self, expected: Expected) -> None:
        if not expected.issuers or "" in expected.issuers:
            raise ValueError("no issuer is expected")
        if not expected.audiences or "" in expected.audiences:
            raise ValueError("no audience is expected")
        if expected.kind not in _BINDINGS:
            raise ValueError(f"{expected.kind!r} is no kind of webhook configuration")
        if expected.name == "" or expected.uid == "" or "" in expected.subjects:
            raise ValueError("an empty name, uid or subject is expected")
        if not 0 <= expected.skew_seconds <= MAX_SKEW:
            raise ValueError("clocks may differ by at most 300 seconds")
        self.expected = expected

    def authenticate(self, keys: KeySet, token: str, now: int) -> Identity:
        """Says whose token it is, if it is good at this time; raises a Rejection if not. `Identity.check` says for which requests."""
        if len(token) > MAX_TOKEN:
            raise Rejection("oversize", f"{len(token)} bytes")
        parts = token.split(".")
        if len(parts) != 3:
            raise Rejection("malformed", "not of three parts")
        try:
            header, payload, signature = (decode_base64(part) for part in parts)
            algorithm, key_id = _read_header(read_object(header))
            claims = read_object(payload)
        except NotPlain as error:
            raise Rejection("malformed", str(error)) from None
        read = _Claims(claims)
        # A token of another issuer is no reason to fetch new keys. This check can only reject a token, never accept one.
        if read.issuer not in self.expected.issuers:
            detail = f"the token's issuer is {excerpt(read.issuer)}, but {self.expected.issuers} is expected"
            raise Rejection("issuer", detail)
        # Nothing else of the payload counts before the signature is verified.
        keys.check(key_id, algorithm, f"{parts[0]}.{parts[1]}".encode(), signature)
        if len(read.audiences) != 1:
            raise Rejection("audience", "not for exactly one audience")
        if read.audiences[0] not in self.expected.audiences:
            raise Rejection("audience", f"for {excerpt(read.audiences[0])}")
        expires = self._check_times(read, max(int(now), 0))
        if read.kubernetes is None:
            raise Rejection("subject", "no claim kubernetes.io")
        self._check_subject(read.subject, read.kubernetes)
        configuration = read.kubernetes.configuration()
        self._check_configuration(configuration)
        group = read.kubernetes.group()
        return Identity(read.subject, read.issuer, read.audiences[0], configuration, group, read.id, expires)

    def _check_times(self, claims: _Claims, now: int) -> int:
        skew = self.expected.skew_seconds
        if claims.expires is None:
            raise Rejection("expired", "no end")
        if now - skew >= claims.expires:
            raise Rejection("expired", f"ended {now - claims.expires} s ago")
        if claims.not_before is not None and now + skew < claims.not_before:
            raise Rejection("not_yet_valid", f"begins in {claims.not_before - now} s")
        if claims.issued is None:
            raise Rejection("lifetime", "no time of issue")
        if now + skew < claims.issued:
            raise Rejection("lifetime", "issued in the future")
        if claims.expires - claims.issued > MAX_LIFETIME:
            raise Rejection("lifetime", f"lives {claims.expires - claims.issued} s")
        return claims.expires

    def _check_subject(self, subject: str, kubernetes: _Kubernetes) -> None:
        namespace, name = kubernetes.namespace, kubernetes.account
        if not namespace or not name or subject != f"system:serviceaccount:{namespace}:{name}":
            raise Rejection("subject", f"{excerpt(subject)} is not the service account of the token")
        if self.expected.subjects and subject not in self.expected.subjects:
            raise Rejection("other_subject", f"{excerpt(subject)} is not let in")

    def _check_configuration(self, bound: Configuration) -> None:
        if bound.kind != self.expected.kind:
            raise Rejection("wrong_kind", f"bound to a {bound.kind}")
        name, uid = self.expected.name, self.expected.uid
        if name not in (None, bound.name) or uid not in (None, bound.uid):
            raise Rejection("wrong_configuration", f"bound to {bound.name!r} ({bound.uid!r})")


def _read_header(header: dict[str, Any]) -> tuple[str, str]:
    if any(extension in header for extension in ("crit", "b64", "zip")):
        raise Rejection("header", "an extension that is not understood")
    kind = header.get("typ")
    if kind is not None and (not isinstance(kind, str) or kind.upper() != "JWT"):
        raise Rejection("header", "another type of token")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise Rejection("algorithm", "an algorithm that is not on the list")
    if not isinstance(key_id, str) or not key_id:
        raise Rejection("unknown_key", "no key is named")
    return algorithm, key_id


class _Claims:
    """The claims that are looked at. One of the wrong type makes the token void: otherwise it would count as absent."""

    def __init__(self, payload: dict[str, Any]) -> None:
        self.issuer, self.subject, self.id = (_text(payload.get(claim)) for claim in ("iss", "sub", "jti"))
        self.expires, self.not_before, self.issued = (_date(payload.get(claim)) for claim in ("exp", "nbf", "iat"))
        audience = payload.get("aud")
        self.audiences = [audience] if isinstance(audience, str) else _texts([] if audience is None else audience)
        kubernetes = payload.get("kubernetes.io")
        self.kubernetes = None if kubernetes is None else _Kubernetes(_object(kubernetes))


class _Kubernetes:
    """The claims in kubernetes.io. The names of Kubernetes 1.37 and those of the KEP differ only in case."""

    def __init__(self, claims: dict[str, Any]) -> None:
        self.namespace = _strict_text(claims.get("namespace", ""))
        account = _reference(claims.get("serviceaccount"))
        self.account = account[0] if account else ""
        self.bound_to_others = any(claims.get(other) is not None for other in ("pod", "secret", "node"))
        self.bindings = {
            kind: [_reference(claims.get(name)) for name in names] for kind, names in _BINDINGS.items()
        }
        self.attested = [_attested(claims.get(name)) for name, _ in _GROUPS]

    def configuration(self) -> Configuration:
        bound = {kind: _agreed(*references) for kind, references in self.bindings.items()}
        if self.bound_to_others:
            raise Rejection("bound_twice", "bound to a pod, a secret or a node")
        found = [(kind, reference) for kind, reference in bound.items() if reference is not None]
        if len(found) > 1:
            raise Rejection("bound_twice", "bound to configurations of both kinds")
        if not found or "" in found[0][1]:
            raise Rejection("not_bound", "bound to no configuration with a name and a uid")
        kind, (name, uid) = found[0]
        return Configuration(kind, name, uid)

    def group(self) -> str:
        groups: list[str | None] = []
        for attested, (name, key) in zip(self.attested, _GROUPS):
            if attested is not None and len(attested.get(key, [])) != 1:
                raise Rejection("no_group", f"{name} does not name exactly one group")
            groups.append(None if attested is None else attested[key][0])
        group = _agreed(*groups)
        if group is None:
            raise Rejection("no_group", "no group is attested")
        if group == "" and groups[1] is None:
            raise Rejection("no_group", "the core group cannot be attested in these claims")
        return group


def _agreed(one: Any, other: Any) -> Any:
    """What is said in one set of claims or in both, if it is the same."""
    if one is not None and other is not None and one != other:
        raise Rejection("disagreement", "the two sets of claims differ")
    return other if one is None else one


def _wrong_type() -> Rejection:
    return Rejection("malformed", "a claim of the wrong type")


def _strict_text(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong_type()
    return value


def _text(value: Any) -> str:
    return "" if value is None else _strict_text(value)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong_type()
    return value


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise _wrong_type()
    return [_strict_text(item) for item in value]


def _reference(value: Any) -> tuple[str, str] | None:
    if value is None:
        return None
    reference = _object(value)
    return _strict_text(reference.get("name", "")), _strict_text(reference.get("uid", ""))


def _attested(value: Any) -> dict[str, list[str]] | None:
    return None if value is None else {key: _texts(groups) for key, groups in _object(value).items()}


def _date(value: Any) -> int | None:
    """Seconds since 1970, fractions cut off."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_LATEST < value < _LATEST:
        raise _wrong_type()
    return int(value)


def audience(client_config: dict[str, Any]) -> str | None:
    """The audience of tokens for a webhook, from its clientConfig: the URL as it is written, or https://NAME.NAMESPACE.svc:PORT/PATH
    with port 443 and path / where they are not set. None if neither is given, or both."""
    url, service = client_config.get("url"), client_config.get("service")
    if (url is None) == (service is None):
        return None
    if service is None:
        return url
    path = service.get("path") or ""
    slash = "" if path.startswith("/") else "/"
    port = 443 if service.get("port") is None else service["port"]
    return f"https://{service['name']}.{service['namespace']}.svc:{port}{slash}{path}"
