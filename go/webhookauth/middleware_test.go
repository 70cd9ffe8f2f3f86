package webhookauth

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func (v *vectorFile) token(t *testing.T, name string) (token string, review string) {
	t.Helper()
	for _, c := range v.Tokens {
		if c.Name == name {
			return c.Token, string(c.Review)
		}
	}
	t.Fatalf("no token %q", name)
	return "", ""
}

func (v *vectorFile) cache(t *testing.T) *KeyCache {
	cache := NewKeyCache(func(context.Context) (*KeySet, error) { return v.keys(t), nil })
	cache.now = func() time.Time { return time.Unix(v.Now, 0) }
	return cache
}

func TestMiddleware(t *testing.T) {
	vectors := readVectors(t)
	expected := Expected{Issuers: vectors.Expected.Issuers, Audiences: vectors.Expected.Audiences, Kind: Validating}
	token, own := vectors.token(t, `for "ninja.turtles.ai": the group of the request`)
	_, others := vectors.token(t, `for "ninja.turtles.ai": another group`)
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if identity := IdentityOf(r); identity != nil {
			w.Header().Set("Subject", identity.Subject)
		}
		w.Write(body)
	})
	ask := func(mode Mode, token string, body io.Reader) (*httptest.ResponseRecorder, *Counts) {
		middleware, err := NewMiddleware(expected, vectors.cache(t), mode)
		if err != nil {
			t.Fatal(err)
		}
		request := httptest.NewRequest(http.MethodPost, "/validate", body)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		recorder := httptest.NewRecorder()
		middleware.Wrap(next).ServeHTTP(recorder, request)
		return recorder, middleware.Counts()
	}

	answer, counts := ask(Require, token, strings.NewReader(own))
	if answer.Code != 200 || answer.Body.String() != own || answer.Header().Get("Subject") == "" || counts.Accepted() != 1 {
		t.Errorf("accepted: %d %q", answer.Code, answer.Body)
	}
	for name, c := range map[string]struct {
		token  string
		body   io.Reader
		status int
		reason Reason
	}{
		"no token":      {"", unread{t}, 401, Missing},
		"a bad token":   {"let.me.in", unread{t}, 401, Malformed},
		"another group": {token, strings.NewReader(others), 403, Group},
	} {
		answer, counts := ask(Require, c.token, c.body)
		if answer.Code != c.status || counts.Rejected(c.reason) != 1 || answer.Body.Len() != 0 {
			t.Errorf("%s: %d %q", name, answer.Code, answer.Body)
		}
		if (answer.Header().Get("WWW-Authenticate") != "") != (c.status == 401) {
			t.Errorf("%s: %v", name, answer.Header())
		}
	}
	if answer, _ := ask(Require, token, strings.NewReader("no review")); answer.Code != 400 {
		t.Errorf("no review: %d", answer.Code)
	}
	// While it is observed, every request passes and is counted.
	for _, c := range []struct{ token, body string }{{"", own}, {token, others}} {
		answer, counts := ask(Observe, c.token, strings.NewReader(c.body))
		if answer.Code != 200 || answer.Body.String() != c.body || counts.Accepted() != 0 || IdentityOf(httptest.NewRequest("GET", "/", nil)) != nil {
			t.Errorf("observed: %d %q", answer.Code, answer.Body)
		}
		page := httptest.NewRecorder()
		counts.ServeHTTP(page, nil)
		if strings.Count(page.Body.String(), "} 1\n") != 1 {
			t.Errorf("observed: %s", page.Body)
		}
	}
	if answer, counts := ask(Off, "", strings.NewReader("anything")); answer.Code != 200 || counts.Accepted() != 0 {
		t.Errorf("off: %d", answer.Code)
	}
	for _, wrong := range []Expected{{}, {Issuers: []string{"a"}, Kind: Validating}, {Issuers: []string{"a"}, Audiences: []string{""}, Kind: Validating}, {Issuers: []string{"a"}, Audiences: []string{"b"}}} {
		if _, err := NewMiddleware(wrong, vectors.cache(t), Require); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}

func TestKeyCache(t *testing.T) {
	vectors := readVectors(t)
	verifier := vectors.verifier(t, vectorExpected{})
	good, _ := vectors.token(t, "a token of ES256")
	unknown, _ := vectors.token(t, "an unknown key")
	var fetches atomic.Int64
	var failing atomic.Bool
	var clock atomic.Int64
	cache := NewKeyCache(func(context.Context) (*KeySet, error) {
		fetches.Add(1)
		if failing.Load() {
			return nil, errors.New("down")
		}
		return vectors.keys(t), nil
	})
	// The tokens' clock stands still; that of the cache moves.
	cache.now = func() time.Time { return time.Unix(vectors.Now, 0).Add(time.Duration(clock.Load())) }
	forward := func(by time.Duration) { clock.Add(int64(by)) }
	ask := func(token string) string {
		_, err := cache.Authenticate(context.Background(), verifier, token)
		result, _ := outcome(err)
		return result
	}

	failing.Store(true)
	if result := ask(good); result != "keys_unavailable" {
		t.Errorf("without keys: %s", result)
	}
	if result := ask(good); result != "keys_unavailable" || fetches.Load() != 1 {
		t.Errorf("asked again too early: %s, %d fetches", result, fetches.Load())
	}
	failing.Store(false)
	forward(fetchInterval)
	if result := ask(good); result != "accepted" || fetches.Load() != 2 {
		t.Errorf("with keys: %s, %d fetches", result, fetches.Load())
	}
	// However many unknown keys come, they cause one fetch.
	forward(fetchInterval)
	var group sync.WaitGroup
	for range 50 {
		group.Add(1)
		go func() {
			defer group.Done()
			if result := ask(unknown); result != "unknown_key" {
				t.Errorf("an unknown key: %s", result)
			}
		}()
	}
	group.Wait()
	if fetches.Load() != 3 {
		t.Errorf("%d fetches", fetches.Load())
	}
	// A caller that goes away does not end the fetch, and waits no longer.
	failing.Store(true)
	forward(2 * maxAge)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := cache.Authenticate(gone, verifier, good); err == nil {
		t.Error("keys that are too old were used")
	}
}

func TestDiscovery(t *testing.T) {
	vectors := readVectors(t)
	issuer := vectors.Expected.Issuers[0]
	found := issuer
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case providerPath:
			io.WriteString(w, `{"issuer":"`+found+`","jwks_uri":"https://192.0.2.1/openid/v1/jwks"}`)
		case jwksPath:
			if r.Header.Get("Accept") != jwksType {
				w.WriteHeader(http.StatusNotAcceptable)
			}
			w.Write(vectors.JWKS)
		}
	}))
	defer server.Close()
	discovery := Discovery{Issuer: issuer, Server: server.URL, RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	if keys, err := discovery.Fetch(context.Background()); err != nil || keys.Len() != 5 {
		t.Errorf("%d keys, %v", keys.Len(), err)
	}
	found = "https://elsewhere.example"
	_, err := discovery.Fetch(context.Background())
	if err == nil || !strings.Contains(err.Error(), `the issuer is "https://elsewhere.example"`) {
		t.Errorf("another issuer: %v", err)
	}
	discovery.RootCAs = nil
	if _, err := discovery.Fetch(context.Background()); err == nil {
		t.Error("a server with an untrusted certificate was accepted")
	}
}
