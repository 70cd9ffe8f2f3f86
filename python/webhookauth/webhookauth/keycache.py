"""The issuer's keys, fetched when they are needed and again when they change."""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable

from .keys import KeySet
from .rejection import Rejection
from .verify import Identity, Verifier

log = logging.getLogger("webhookauth")

REFRESH_AFTER = 5 * 60
MAX_AGE = 60 * 60
FETCH_INTERVAL = 10


class KeyCache:
    """Keys that keep themselves up to date. Threads share one.

    They are fetched again when a token names an unknown key, at most every ten seconds, and every five minutes, so that withdrawn keys
    go away. One fetch is under way at a time. Keys are not used for more than an hour without a successful fetch.
    """

    def __init__(self, fetch: Callable[[], KeySet], clock: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: KeySet | None = None
        self._fetched = self._tried = float("-inf")

    @classmethod
    def fixed(cls, keys: KeySet) -> KeyCache:
        """Keys that never change, for tests."""
        return cls(lambda: keys)

    def prefetch(self) -> None:
        """Fetches keys now, to find out at start whether they can be had."""
        self._usable()

    def authenticate(self, verifier: Verifier, token: str, now: int | None = None) -> Identity:
        """`Verifier.authenticate` with the keys of the cache."""
        now = int(time.time()) if now is None else now
        keys = self._usable()
        try:
            return verifier.authenticate(keys, token, now)
        except Rejection as rejection:
            if rejection.reason != "unknown_key":
                raise
            self._refresh(keys)
            newer = self._keys
            if newer is keys or newer is None:
                raise
        return verifier.authenticate(newer, token, now)

    def _usable(self) -> KeySet:
        keys, age = self._keys, self._clock() - self._fetched
        if keys is not None and age < MAX_AGE:
            if age >= REFRESH_AFTER and self._clock() - self._tried >= FETCH_INTERVAL:
                threading.Thread(target=self._refresh, args=(keys,), daemon=True).start()
            return keys
        self._refresh(keys)
        keys = self._keys
        if keys is None or self._clock() - self._fetched >= MAX_AGE:
            raise Rejection("keys_unavailable", "the issuer's keys could not be fetched")
        return keys

    def _refresh(self, seen: KeySet | None) -> None:
        """Fetches keys, unless another thread did so after `seen` was looked at, or the last try is too recent."""
        with self._lock:
            if self._keys is not seen or self._clock() - self._tried < FETCH_INTERVAL:
                return
            self._tried = self._clock()
            try:
                self._keys = self._fetch()
                self._fetched = self._clock()
            except Exception as error:  # whatever went wrong, the keys that are there stay in use
                log.warning("cannot fetch the issuer's keys: %s", error)
