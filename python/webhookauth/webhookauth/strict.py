"""JSON and base64 that read only one way.

Where a key comes twice, one reader takes the first value and another the last. What is signed would then mean one thing to one program
and something else to the next, so it is not read at all.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

_BASE64URL = re.compile(rb"[A-Za-z0-9_-]*")
MAX_DEPTH = 128


class NotPlain(ValueError):
    """A document that is not a JSON object that reads only one way."""


def read_object(document: bytes, depth: int | None = MAX_DEPTH) -> dict[str, Any]:
    """Reads a JSON object without duplicate keys, lone surrogates and numbers that are none."""
    try:
        text = document.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise NotPlain(str(error)) from None
    if not isinstance(value, dict):
        raise NotPlain("not an object")
    _check(value, depth)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number beyond all numbers")
    return number


def _check(value: Any, depth: int | None) -> None:
    """Refuses lone surrogates and, if there is a limit, values that are nested deeper."""
    rest = [(value, 1)]
    while rest:
        value, level = rest.pop()
        if isinstance(value, str):
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise NotPlain("a lone surrogate") from None
        elif isinstance(value, (dict, list)):
            if depth is not None and level > depth:
                raise NotPlain("nested too deep")
            if isinstance(value, dict):
                rest.extend((key, level) for key in value)
                value = value.values()
            rest.extend((item, level + 1) for item in value)


def decode_base64(text: str) -> bytes:
    """Reads base64url without padding, in its one spelling."""
    raw = text.encode("ascii", "replace")
    if not _BASE64URL.fullmatch(raw) or len(raw) % 4 == 1:
        raise NotPlain("not base64url")
    decoded = base64.urlsafe_b64decode(raw + b"=" * (-len(raw) % 4))
    if base64.urlsafe_b64encode(decoded).rstrip(b"=") != raw:
        raise NotPlain("not base64url in its one spelling")
    return decoded
