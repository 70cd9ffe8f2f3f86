"""The middleware and the key cache."""

import io
import json
import logging
import threading
import unittest

from webhookauth import Expected, IssuerError, KeyCache, Middleware, Rejection, parse_provider
from webhookauth.keycache import FETCH_INTERVAL, MAX_AGE
from webhookauth.middleware import IDENTITY

from .test_vectors import KEYS, VECTORS, verifier

logging.getLogger("webhookauth").setLevel(logging.CRITICAL)


def vector(name):
    case = next(case for case in VECTORS["tokens"] if case["name"] == name)
    return case["token"], json.dumps(case.get("review")).encode()


class At(KeyCache):
    """Keys at the time of the vectors."""

    def authenticate(self, checks, token, now=None):
        return super().authenticate(checks, token, VECTORS["now"])


class Unread(io.RawIOBase):
    def read(self, *_):
        raise AssertionError("the body was read")


class MiddlewareTest(unittest.TestCase):
    def ask(self, mode, token, body):
        def application(environ, start_response):
            self.identity = environ.get(IDENTITY)
            start_response("200 OK", [])
            return [environ["wsgi.input"].read()]

        self.identity = None
        middleware = Middleware(application, Expected(**VECTORS["expected"]), At(lambda: KEYS), mode)
        stream = body if isinstance(body, Unread) else io.BytesIO(body)
        environ = {"wsgi.input": stream, "CONTENT_LENGTH": "10" if stream is body else str(len(body))}
        # A client cannot set the identity of the caller.
        environ[IDENTITY] = "another-user"
        if token:
            environ["HTTP_AUTHORIZATION"] = f"Bearer {token}"
        answered = {}

        def start_response(status, headers):
            answered.update(status=int(status.split()[0]), headers=dict(headers))

        answered["body"] = b"".join(middleware(environ, start_response))
        return answered, middleware.counts

    def test_callers_are_refused_and_accepted(self):
        token, own = vector('for "ninja.turtles.ai": the group of the request')
        _, others = vector('for "ninja.turtles.ai": another group')
        answer, counts = self.ask("require", token, own)
        self.assertEqual((answer["status"], answer["body"], counts.accepted), (200, own, 1))
        self.assertTrue(self.identity.subject.startswith("system:serviceaccount:"))
        for token_sent, body, status, reason in [
            ("", Unread(), 401, "missing"),
            ("let.me.in", Unread(), 401, "malformed"),
            (token, others, 403, "group"),
        ]:
            answer, counts = self.ask("require", token_sent, body)
            self.assertEqual((answer["status"], answer["body"], counts.rejected[reason]), (status, b"", 1))
            self.assertEqual("WWW-Authenticate" in answer["headers"], status == 401)
        self.assertEqual(self.ask("require", token, b"no review")[0]["status"], 400)
        self.assertEqual(self.ask("require", token, b" " * (8 * 1024 * 1024 + 1))[0]["status"], 413)

    def test_while_it_observes_every_request_passes_and_is_counted(self):
        token, own = vector('for "ninja.turtles.ai": the group of the request')
        _, others = vector('for "ninja.turtles.ai": another group')
        for token_sent, body, reason in [("", own, "missing"), (token, others, "group")]:
            answer, counts = self.ask("observe", token_sent, body)
            self.assertEqual((answer["status"], answer["body"], counts.accepted), (200, body, 0))
            self.assertIsNone(self.identity)
            self.assertIn(f'webhook_auth_rejected_total{{reason="{reason}"}} 1\n', counts.to_prometheus())
        self.assertEqual(self.ask("off", "", b"anything")[0]["status"], 200)
        with self.assertRaises(ValueError):
            self.ask("on", "", b"")

    def test_a_verifier_that_would_let_in_anybody_is_not_made(self):
        for wrong in [{"issuers": []}, {"audiences": [""]}, {"kind": "Pod"}, {"name": ""}, {"skew_seconds": 301}]:
            with self.assertRaises(ValueError):
                Middleware(None, Expected(**{**VECTORS["expected"], **wrong}), At(lambda: KEYS))


class KeyCacheTest(unittest.TestCase):
    def test_keys_are_fetched_once_however_many_ask(self):
        self.now, self.fetches, self.failing = 0.0, 0, True

        def fetch():
            self.fetches += 1
            if self.failing:
                raise OSError("down")
            return KEYS

        cache = KeyCache(fetch, lambda: self.now)
        good, _ = vector("a token of ES256")
        unknown, _ = vector("an unknown key")

        def ask(token):
            try:
                cache.authenticate(verifier(), token, VECTORS["now"])
                return "accepted"
            except Rejection as rejection:
                return rejection.reason

        self.assertEqual((ask(good), ask(good), self.fetches), ("keys_unavailable", "keys_unavailable", 1))
        self.failing, self.now = False, self.now + FETCH_INTERVAL
        self.assertEqual((ask(good), self.fetches), ("accepted", 2))
        self.now += FETCH_INTERVAL
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(ask(unknown))) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((set(answers), self.fetches), ({"unknown_key"}, 3))
        self.failing, self.now = True, self.now + MAX_AGE
        self.assertEqual(ask(good), "keys_unavailable")

    def test_an_unexpected_issuer_is_named(self):
        document = b'{"issuer":"https://elsewhere.example","jwks_uri":"https://a"}'
        with self.assertRaisesRegex(IssuerError, "the issuer is 'https://elsewhere.example', but"):
            parse_provider(document, "https://kubernetes.default.svc")
