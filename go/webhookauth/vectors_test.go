package webhookauth

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"testing"
	"time"
)

type vectorFile struct {
	Now      int64           `json:"now"`
	Expected vectorExpected  `json:"expected"`
	JWKS     json.RawMessage `json:"jwks"`
	Tokens   []struct {
		Name     string          `json:"name"`
		Token    string          `json:"token"`
		Now      *int64          `json:"now"`
		Expected vectorExpected  `json:"expected"`
		Review   json.RawMessage `json:"review"`
		Result   string          `json:"result"`
		Status   int             `json:"status"`
		Identity *struct {
			Subject, Issuer, Audience, Group string
			Configuration                    Configuration
		} `json:"identity"`
	} `json:"tokens"`
	Headers []struct {
		Name   string   `json:"name"`
		Values []string `json:"values"`
		Result string   `json:"result"`
	} `json:"headers"`
	KeySets []struct {
		Name     string `json:"name"`
		Document string `json:"document"`
		Result   string `json:"result"`
		Keys     int    `json:"keys"`
	} `json:"key_sets"`
	Providers []struct {
		Name     string `json:"name"`
		Issuer   string `json:"issuer"`
		Document string `json:"document"`
		Result   string `json:"result"`
	} `json:"providers"`
	Audiences []struct {
		ClientConfig ClientConfig `json:"clientConfig"`
		Audience     *string      `json:"audience"`
	} `json:"audiences"`
	Reviews []struct {
		Name   string `json:"name"`
		Body   string `json:"body"`
		Result string `json:"result"`
	} `json:"reviews"`
}

type vectorExpected struct {
	Issuers     []string          `json:"issuers"`
	Audiences   []string          `json:"audiences"`
	Kind        ConfigurationKind `json:"kind"`
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Subjects    []string          `json:"subjects"`
	SkewSeconds *int64            `json:"skewSeconds"`
}

func readVectors(t *testing.T) *vectorFile {
	t.Helper()
	document, err := os.ReadFile("../../crates/webhook-auth/vectors/webhook-auth.json")
	if err != nil {
		t.Fatal(err)
	}
	vectors := &vectorFile{}
	if err := json.Unmarshal(document, vectors); err != nil {
		t.Fatal(err)
	}
	// A lost case must not go unnoticed.
	if n := len(vectors.Tokens); n != 142 {
		t.Fatalf("%d tokens", n)
	}
	return vectors
}

func (v *vectorFile) keys(t *testing.T) *KeySet {
	t.Helper()
	keys, err := ParseKeySet(v.JWKS)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func (v *vectorFile) verifier(t *testing.T, over vectorExpected) *Verifier {
	t.Helper()
	expected := Expected{Issuers: v.Expected.Issuers, Audiences: v.Expected.Audiences, Kind: v.Expected.Kind, Name: over.Name, UID: over.UID, Subjects: over.Subjects}
	if over.Issuers != nil {
		expected.Issuers = over.Issuers
	}
	if over.Audiences != nil {
		expected.Audiences = over.Audiences
	}
	if over.Kind != "" {
		expected.Kind = over.Kind
	}
	if over.SkewSeconds != nil {
		if expected.Skew = time.Duration(*over.SkewSeconds) * time.Second; expected.Skew == 0 {
			expected.Skew = -1
		}
	}
	verifier, err := NewVerifier(expected)
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}

func outcome(err error) (string, int) {
	var rejection *Rejection
	switch {
	case err == nil:
		return "accepted", http.StatusOK
	case errors.As(err, &rejection):
		return string(rejection.Reason), rejection.Reason.Status()
	default:
		return err.Error(), 0
	}
}

func TestTokens(t *testing.T) {
	vectors := readVectors(t)
	keys := vectors.keys(t)
	for _, c := range vectors.Tokens {
		t.Run(c.Name, func(t *testing.T) {
			now := vectors.Now
			if c.Now != nil {
				now = *c.Now
			}
			identity, err := vectors.verifier(t, c.Expected).Authenticate(keys, c.Token, time.Unix(now, 0))
			if err == nil && c.Identity != nil {
				want := c.Identity
				if identity.Subject != want.Subject || identity.Issuer != want.Issuer || identity.Audience != want.Audience ||
					identity.Group != want.Group || identity.Configuration != want.Configuration {
					t.Errorf("%+v", identity)
				}
			}
			if err == nil && c.Review != nil {
				request, reviewError := ParseReview(c.Review)
				if reviewError != nil {
					t.Fatal(reviewError)
				}
				err = identity.Permits(request)
			}
			if result, status := outcome(err); result != c.Result || status != c.Status {
				t.Errorf("%s %d (%v), expected %s %d", result, status, err, c.Result, c.Status)
			}
		})
	}
}

func TestHeaders(t *testing.T) {
	vectors := readVectors(t)
	for _, c := range vectors.Headers {
		t.Run(c.Name, func(t *testing.T) {
			token, rejection := BearerToken(http.Header{"Authorization": c.Values})
			var err error
			if rejection != nil {
				err = rejection
			} else {
				_, err = vectors.verifier(t, vectorExpected{}).Authenticate(vectors.keys(t), token, time.Unix(vectors.Now, 0))
			}
			if result, _ := outcome(err); result != c.Result {
				t.Errorf("%s, expected %s", result, c.Result)
			}
		})
	}
}

func TestDocuments(t *testing.T) {
	vectors := readVectors(t)
	named := func(err error, names map[error]string) string {
		for known, name := range names {
			if errors.Is(err, known) {
				return name
			}
		}
		return "accepted"
	}
	for _, c := range vectors.KeySets {
		keys, err := ParseKeySet([]byte(c.Document))
		result := named(err, map[error]string{ErrKeySetAmbiguous: "ambiguous", ErrKeySetMalformed: "malformed", ErrKeySetNoKeys: "no_keys", ErrKeySetTooMany: "too_many", ErrKeySetOversize: "malformed"})
		if result != c.Result || keys.Len() != c.Keys {
			t.Errorf("key set %q: %s with %d keys, expected %s with %d", c.Name, result, keys.Len(), c.Result, c.Keys)
		}
	}
	for _, c := range vectors.Providers {
		_, err := ParseProvider([]byte(c.Document), c.Issuer)
		result := named(err, map[error]string{ErrProviderMalformed: "malformed", ErrProviderAddress: "address"})
		var issuer *IssuerError
		if errors.As(err, &issuer) {
			result = "issuer"
		}
		if result != c.Result {
			t.Errorf("provider %q: %s, expected %s", c.Name, result, c.Result)
		}
	}
	for _, c := range vectors.Audiences {
		audience, ok := c.ClientConfig.Audience()
		if ok != (c.Audience != nil) || ok && audience != *c.Audience {
			t.Errorf("audience %q %v, expected %v", audience, ok, c.Audience)
		}
	}
	for _, c := range vectors.Reviews {
		_, err := ParseReview([]byte(c.Body))
		result := named(err, map[error]string{ErrReviewMalformed: "malformed", ErrReviewVersion: "version"})
		if result != c.Result {
			t.Errorf("review %q: %s, expected %s", c.Name, result, c.Result)
		}
	}
}
