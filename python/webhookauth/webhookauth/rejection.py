"""Why a caller is refused."""

from __future__ import annotations

# In the order in which a token is examined. crates/webhook-auth says what each of them means.
REASONS = (
    "missing", "oversize", "malformed", "algorithm", "header", "unknown_key", "signature", "issuer", "audience", "expired",
    "not_yet_valid", "lifetime", "subject", "other_subject", "not_bound", "bound_twice", "wrong_kind", "wrong_configuration",
    "no_group", "disagreement", "group", "keys_unavailable",
)


class Rejection(Exception):
    """Why a caller is refused. The text is for the webhook's log: the caller gets the status and nothing else."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail

    @property
    def status(self) -> int:
        """The HTTP status: 403 for a known caller that asks about another group, 503 where the webhook has no keys, else 401."""
        return {"group": 403, "keys_unavailable": 503}.get(self.reason, 401)


def excerpt(text: str) -> str:
    """Returns the beginning of an untrusted text, quoted."""
    return repr(text if len(text) <= 256 else text[:256] + "…")
