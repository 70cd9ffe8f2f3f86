"""The test vectors that the Rust crate and the Go package pass, too."""

import json
import unittest
from pathlib import Path

from webhookauth import (
    AdmissionRequest, DiscoveryError, Expected, KeySet, KeySetError, Rejection, ReviewError, Verifier, audience, bearer_token,
    parse_provider,
)

FILE = Path(__file__).parents[3] / "crates/webhook-auth/vectors/webhook-auth.json"
VECTORS = json.loads(FILE.read_text("utf-8"))
KEYS = KeySet.parse(json.dumps(VECTORS["jwks"]).encode())


def verifier(case=None):
    said = {**VECTORS["expected"], **(case or {}).get("expected", {})}
    if "skewSeconds" in said:
        said["skew_seconds"] = said.pop("skewSeconds")
    return Verifier(Expected(**said))


class Vectors(unittest.TestCase):
    def test_no_case_was_lost(self):
        sections = ["tokens", "headers", "key_sets", "providers", "audiences", "reviews"]
        self.assertEqual([len(VECTORS[section]) for section in sections], [142, 12, 33, 9, 9, 12])

    def test_tokens(self):
        for case in VECTORS["tokens"]:
            with self.subTest(case["name"]):
                try:
                    identity = verifier(case).authenticate(KEYS, case["token"], case.get("now", VECTORS["now"]))
                    if "identity" in case:
                        expected = case["identity"]
                        for field in ("subject", "issuer", "audience", "group"):
                            self.assertEqual(getattr(identity, field), expected[field])
                        self.assertEqual(vars(identity.configuration), expected["configuration"])
                    if "review" in case:
                        identity.check(AdmissionRequest.parse(json.dumps(case["review"]).encode()))
                    result, status = "accepted", 200
                except Rejection as rejection:
                    result, status = rejection.reason, rejection.status
                self.assertEqual((result, status), (case["result"], case["status"]))

    def test_headers(self):
        for case in VECTORS["headers"]:
            with self.subTest(case["name"]):
                # As WSGI servers hand on repeated headers.
                value = ",".join(case["values"]) if case["values"] else None
                try:
                    verifier().authenticate(KEYS, bearer_token(value), VECTORS["now"])
                    result = "accepted"
                except Rejection as rejection:
                    result = rejection.reason
                self.assertEqual(result, case["result"])

    def test_key_sets(self):
        for case in VECTORS["key_sets"]:
            with self.subTest(case["name"]):
                try:
                    result, keys = "accepted", len(KeySet.parse(case["document"].encode()))
                except KeySetError as error:
                    result, keys = error.reason, 0
                self.assertEqual((result, keys), (case["result"], case["keys"]))

    def test_providers(self):
        for case in VECTORS["providers"]:
            with self.subTest(case["name"]):
                try:
                    parse_provider(case["document"].encode(), case["issuer"])
                    result = "accepted"
                except DiscoveryError as error:
                    result = error.reason
                self.assertEqual(result, case["result"])

    def test_audiences(self):
        for case in VECTORS["audiences"]:
            self.assertEqual(audience(case["clientConfig"]), case["audience"], case)

    def test_reviews(self):
        for case in VECTORS["reviews"]:
            with self.subTest(case["name"]):
                try:
                    AdmissionRequest.parse(case["body"].encode())
                    result = "accepted"
                except ReviewError as error:
                    result = error.reason
                self.assertEqual(result, case["result"])


if __name__ == "__main__":
    unittest.main()
