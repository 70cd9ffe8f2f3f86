"""Verify that it is an API server that calls a Kubernetes admission webhook, as KEP-6060 describes.

With the feature gate APIServerWebhookAuthenticationToken on, an API server sends a bearer token with every AdmissionReview. The token
is for one webhook, is bound to its configuration, and is good for one API group or for all. `Verifier` decides about a token without
any I/O; `KeyCache` fetches and renews the issuer's keys; `Middleware` puts both in front of a WSGI application, such as one of Flask.
"""

from .discovery import Discovery, DiscoveryError, IssuerError, at_server, in_cluster, parse_provider
from .keycache import KeyCache
from .keys import KeySet, KeySetError
from .middleware import Counts, Middleware, bearer_token
from .rejection import REASONS, Rejection
from .request import AdmissionRequest, ReviewError
from .verify import MUTATING, VALIDATING, Configuration, Expected, Identity, Verifier, audience

__all__ = [
    "MUTATING", "REASONS", "VALIDATING", "AdmissionRequest", "Configuration", "Counts", "Discovery", "DiscoveryError", "Expected",
    "Identity", "IssuerError", "KeyCache", "KeySet", "KeySetError", "Middleware", "Rejection", "ReviewError", "Verifier",
    "at_server", "audience", "bearer_token", "in_cluster", "parse_provider",
]
