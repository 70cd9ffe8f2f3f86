"""The keys that an issuer publishes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from .rejection import Rejection
from .strict import NotPlain, decode_base64, read_object

MAX_DOCUMENT = 256 * 1024
MAX_KEYS = 128
ALGORITHMS = ("RS256", "ES256", "ES384", "ES512")
_CURVES: dict[str, tuple[str, ec.EllipticCurve, hashes.HashAlgorithm, int]] = {
    "P-256": ("ES256", ec.SECP256R1(), hashes.SHA256(), 32),
    "P-384": ("ES384", ec.SECP384R1(), hashes.SHA384(), 48),
    "P-521": ("ES512", ec.SECP521R1(), hashes.SHA512(), 66),
}


class KeySetError(Exception):
    """Why a key set is of no use: `reason` is malformed, too_many, no_keys or ambiguous."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the key set is of no use: {reason}")
        self.reason = reason


@dataclass(frozen=True)
class _Key:
    id: str
    algorithm: str
    encoded: bytes
    verify: Callable[[bytes, bytes], None]


class KeySet:
    """The keys that an issuer publishes."""

    def __init__(self, keys: list[_Key]) -> None:
        self._keys = keys

    @classmethod
    def parse(cls, document: bytes) -> KeySet:
        """Reads a JSON Web Key Set (RFC 7517). Keys that cannot verify a token are left out."""
        if len(document) > MAX_DOCUMENT:
            raise KeySetError("malformed")
        try:
            listed = read_object(document).get("keys")
        except NotPlain:
            raise KeySetError("malformed") from None
        if not isinstance(listed, list) or not all(isinstance(jwk, dict) for jwk in listed):
            raise KeySetError("malformed")
        if len(listed) > MAX_KEYS:
            raise KeySetError("too_many")
        keys: list[_Key] = []
        for jwk in listed:
            key = _usable(jwk)
            if key is None:
                continue
            known = next((k for k in keys if (k.id, k.algorithm) == (key.id, key.algorithm)), None)
            if known is None:
                keys.append(key)
            elif known.encoded != key.encoded:
                raise KeySetError("ambiguous")
        if not keys:
            raise KeySetError("no_keys")
        return cls(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def check(self, key_id: str, algorithm: str, message: bytes, signature: bytes) -> None:
        """Verifies a signature with the key of this id. The algorithm is the key's: a header can only agree with it."""
        named = [key for key in self._keys if key.id == key_id]
        if not named:
            raise Rejection("unknown_key", "a key that the issuer does not publish")
        key = next((key for key in named if key.algorithm == algorithm), None)
        if key is None:
            raise Rejection("algorithm", "not the algorithm of the key")
        try:
            key.verify(message, signature)
        except (InvalidSignature, ValueError):
            raise Rejection("signature", "the signature does not match") from None


def _usable(jwk: dict[str, Any]) -> _Key | None:
    key_id = jwk.get("kid")
    if not isinstance(key_id, str) or not key_id or jwk.get("use", "sig") != "sig":
        return None
    if "key_ops" in jwk:
        operations = jwk["key_ops"]
        if not isinstance(operations, list) or "verify" not in operations:
            return None
    try:
        if jwk.get("kty") == "RSA":
            algorithm, encoded, verify = _rsa(jwk)
        elif jwk.get("kty") == "EC" and isinstance(jwk.get("crv"), str) and jwk["crv"] in _CURVES:
            algorithm, encoded, verify = _ec(jwk)
        else:
            return None
    except (ValueError, KeyError):
        return None
    if "alg" in jwk and jwk["alg"] != algorithm:
        return None
    return _Key(key_id, algorithm, encoded, verify)


def _bytes(jwk: dict[str, Any], field: str) -> bytes:
    if not isinstance(jwk[field], str):
        raise ValueError(f"{field} is no text")
    return decode_base64(jwk[field])


def _rsa(jwk: dict[str, Any]) -> tuple[str, bytes, Callable[[bytes, bytes], None]]:
    n, e = int.from_bytes(_bytes(jwk, "n"), "big"), int.from_bytes(_bytes(jwk, "e"), "big")
    if not 256 <= (n.bit_length() + 7) // 8 <= 1024 or e >= 1 << 64:
        raise ValueError("an RSA key of another size")
    key = rsa.RSAPublicNumbers(e, n).public_key()

    def verify(message: bytes, signature: bytes) -> None:
        key.verify(signature, message, padding.PKCS1v15(), hashes.SHA256())

    return "RS256", f"{n}:{e}".encode(), verify


def _ec(jwk: dict[str, Any]) -> tuple[str, bytes, Callable[[bytes, bytes], None]]:
    algorithm, curve, digest, size = _CURVES[jwk["crv"]]
    x, y = _bytes(jwk, "x"), _bytes(jwk, "y")
    if len(x) != size or len(y) != size:
        raise ValueError("a point of another size")
    # This refuses points that are not on the curve.
    key = ec.EllipticCurvePublicKey.from_encoded_point(curve, b"\x04" + x + y)

    def verify(message: bytes, signature: bytes) -> None:
        if len(signature) != 2 * size:
            raise ValueError("a signature of another size")
        r, s = int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big")
        key.verify(encode_dss_signature(r, s), message, ec.ECDSA(digest))

    return algorithm, x + y, verify
