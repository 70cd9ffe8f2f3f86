// Package webhookauth verifies that it is an API server that calls a Kubernetes admission webhook, as KEP-6060 describes.
//
// With the feature gate APIServerWebhookAuthenticationToken on, an API server sends a bearer token with every AdmissionReview. The
// token is for one webhook, is bound to its configuration, and is good for one API group or for all. A [Verifier] decides about a
// token without any I/O; a [KeyCache] fetches and renews the issuer's keys; a [Middleware] puts both in front of an [http.Handler].
//
// The package uses the standard library only. It passes the test vectors of the Rust crate webhook-auth, and works with every API
// server that issues such tokens.
package webhookauth
