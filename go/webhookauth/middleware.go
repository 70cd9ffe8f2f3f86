package webhookauth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
)

const maxReview = 8 * 1024 * 1024

// Mode says what a refusal does, for a roll-out in steps.
type Mode string

// The modes.
const (
	Off     Mode = "off"     // tokens are not looked at
	Observe Mode = "observe" // tokens are verified, logged and counted, and every request passes
	Require Mode = "require" // a request without a good token that fits is refused
)

// Middleware stands in front of a webhook. It answers 401 to callers without a good token before the body is read, and 403 where the
// token is not for the group of the request.
type Middleware struct {
	verifier *Verifier
	keys     *KeyCache
	mode     Mode
	counts   Counts
}

// NewMiddleware makes the middleware of one webhook. Each path of a server is a webhook of its own, with an audience of its own; they
// share the keys.
func NewMiddleware(expected Expected, keys *KeyCache, mode Mode) (*Middleware, error) {
	verifier, err := NewVerifier(expected)
	if err != nil {
		return nil, err
	}
	if mode != Off && mode != Observe && mode != Require {
		return nil, fmt.Errorf("%q is no mode: it is off, observe or require", mode)
	}
	return &Middleware{verifier: verifier, keys: keys, mode: mode}, nil
}

// Counts are the numbers of accepted and rejected requests.
func (m *Middleware) Counts() *Counts { return &m.counts }

// Wrap puts the middleware in front of a handler, which can still read the whole body.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.mode == Off {
			next.ServeHTTP(w, r)
			return
		}
		identity, err := m.authenticate(r)
		if err != nil && m.refuse(w, err) {
			return
		}
		body, readError := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
		if readError != nil {
			http.Error(w, "the body could not be read, or is too long", http.StatusRequestEntityTooLarge)
			return
		}
		request, err := ParseReview(body)
		if err != nil {
			if m.mode == Require {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		} else if identity != nil {
			if err := identity.Permits(request); err == nil {
				m.counts.accepted.Add(1)
				r = r.WithContext(context.WithValue(r.Context(), identityKey{}, identity))
			} else if m.refuse(w, err) {
				return
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
		next.ServeHTTP(w, r)
	})
}

type identityKey struct{}

// IdentityOf returns whose token came with a request. In mode Require it is never nil behind the middleware.
func IdentityOf(r *http.Request) *Identity {
	identity, _ := r.Context().Value(identityKey{}).(*Identity)
	return identity
}

func (m *Middleware) authenticate(r *http.Request) (*Identity, error) {
	token, rejection := BearerToken(r.Header)
	if rejection != nil {
		return nil, rejection
	}
	return m.keys.Authenticate(r.Context(), m.verifier, token)
}

// refuse logs and counts a rejection, and answers unless the mode lets every request pass.
func (m *Middleware) refuse(w http.ResponseWriter, err error) bool {
	var rejection *Rejection
	if !errors.As(err, &rejection) {
		rejection = reject(KeysUnavailable, "%v", err)
	}
	m.counts.reject(rejection.Reason)
	slog.Warn("webhook caller refused", "reason", rejection.Reason, "detail", rejection.Detail, "mode", m.mode)
	if m.mode != Require {
		return false
	}
	status := rejection.Reason.Status()
	if status == http.StatusUnauthorized {
		challenge := `Bearer error="invalid_token"`
		if rejection.Reason == Missing {
			challenge = "Bearer"
		}
		w.Header().Set("WWW-Authenticate", challenge)
	}
	w.WriteHeader(status)
	return true
}

// BearerToken is the one bearer token of a request.
func BearerToken(header http.Header) (string, *Rejection) {
	values := header.Values("Authorization")
	if len(values) == 0 {
		return "", reject(Missing, "no bearer token")
	}
	if len(values) > 1 {
		return "", reject(Malformed, "more than one Authorization header")
	}
	if len(values[0]) > maxToken+64 {
		return "", reject(Oversize, "%d bytes", len(values[0]))
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.Trim(token, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", reject(Missing, "no bearer token")
	}
	return token, nil
}

// Counts are the numbers of accepted and rejected requests. In mode Observe the rejected ones passed.
type Counts struct {
	accepted atomic.Uint64
	rejected [64]atomic.Uint64
}

// Accepted is the number of requests with a token that fits.
func (c *Counts) Accepted() uint64 { return c.accepted.Load() }

// Rejected is the number of requests that were rejected for this reason.
func (c *Counts) Rejected(reason Reason) uint64 {
	for i, known := range Reasons {
		if known == reason {
			return c.rejected[i].Load()
		}
	}
	return 0
}

func (c *Counts) reject(reason Reason) {
	for i, known := range Reasons {
		if known == reason {
			c.rejected[i].Add(1)
		}
	}
}

// ServeHTTP writes the counts as Prometheus reads them.
func (c *Counts) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprintf(w, "# HELP webhook_auth_accepted_total Requests with a token that fits.\n")
	fmt.Fprintf(w, "# TYPE webhook_auth_accepted_total counter\nwebhook_auth_accepted_total %d\n", c.Accepted())
	fmt.Fprintf(w, "# HELP webhook_auth_rejected_total Requests without one, by reason; in mode observe they passed.\n")
	fmt.Fprintf(w, "# TYPE webhook_auth_rejected_total counter\n")
	for _, reason := range Reasons {
		fmt.Fprintf(w, "webhook_auth_rejected_total{reason=%q} %d\n", string(reason), c.Rejected(reason))
	}
}
