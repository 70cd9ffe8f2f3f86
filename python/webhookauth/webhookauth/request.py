"""The part of an AdmissionReview that is compared with a token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .strict import NotPlain, read_object

# Kinds that are sent to subresources of other groups.
_LENT = {("autoscaling", "Scale"), ("policy", "Eviction"), ("authentication.k8s.io", "TokenRequest")}


class ReviewError(Exception):
    """Why a review cannot be read: `reason` is malformed or version."""

    def __init__(self, reason: str) -> None:
        super().__init__("not a known version of AdmissionReview" if reason == "version" else "not an AdmissionReview with a request")
        self.reason = reason


@dataclass(frozen=True)
class AdmissionRequest:
    """What a caller asks about, as far as its token goes."""

    uid: str
    resource_group: str
    kind_group: str
    kind_version: str
    kind: str
    subresource: str

    @classmethod
    def parse(cls, body: bytes) -> AdmissionRequest:
        """Reads the request of an AdmissionReview. A body in which a field comes twice is refused."""
        try:
            review = read_object(body, depth=None)
        except NotPlain:
            raise ReviewError("malformed") from None
        request, version = review.get("request"), review.get("apiVersion")
        if review.get("kind") != "AdmissionReview" or not isinstance(request, dict) or not isinstance(version, str):
            raise ReviewError("malformed")
        resource, kind = request.get("resource"), request.get("kind", {})
        if not isinstance(resource, dict) or not isinstance(kind, dict):
            raise ReviewError("malformed")
        for name in ("version", "resource"):
            _text(resource, name)
        subresource = request.get("subResource")
        read = cls(
            uid=_text(request, "uid"),
            resource_group=_text(resource, "group"),
            kind_group=_text(kind, "group"),
            kind_version=_text(kind, "version"),
            kind=_text(kind, "kind"),
            subresource="" if subresource is None else _text(request, "subResource"),
        )
        if version not in ("admission.k8s.io/v1", "admission.k8s.io/v1beta1"):
            raise ReviewError("version")
        return read

    def group(self) -> str | None:
        """The API group that the request is about. The kind must be of the same group, since webhooks decide by it, too, unless it is
        one that other groups use for their subresources (a Scale of autoscaling for a Deployment of apps)."""
        no_kind = not (self.kind_group or self.kind_version or self.kind)
        lent = bool(self.subresource) and (self.kind_group, self.kind) in _LENT
        coherent = lent or no_kind or self.kind_group == self.resource_group
        return self.resource_group if coherent else None


def _text(of: dict[str, Any], name: str) -> str:
    value = of.get(name, "")
    if not isinstance(value, str):
        raise ReviewError("malformed")
    return value
