package webhookauth

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxToken = 16 * 1024
	maxSkew  = 5 * time.Minute
	// EveryGroup is the attested group of kube-apiserver's own tokens.
	EveryGroup = "*"
)

// ConfigurationKind is the kind of configuration that a webhook is in.
type ConfigurationKind string

// The two kinds.
const (
	Validating ConfigurationKind = "ValidatingWebhookConfiguration"
	Mutating   ConfigurationKind = "MutatingWebhookConfiguration"
)

// Expected says which tokens a webhook accepts.
type Expected struct {
	// Issuers are the issuers, exactly as in the tokens: the API server's --service-account-issuer, or several while that changes.
	Issuers []string
	// Audiences are those of the webhook (see [ClientConfig.Audience]).
	Audiences []string
	// Kind is the kind of the webhook's configuration.
	Kind ConfigurationKind
	// Name and UID are those of the configuration, if tokens bound to others are to be refused.
	Name, UID string
	// Subjects are the accounts that are let in, as system:serviceaccount:kube-system:webhook-auth; all if there are none.
	Subjects []string
	// Skew is how far clocks may differ: a minute if zero, none if negative, at most five minutes.
	Skew time.Duration
}

// Verifier verifies the tokens that one webhook is sent. It does no I/O.
type Verifier struct {
	expected Expected
}

// NewVerifier makes a verifier, unless it would let in more than was meant.
func NewVerifier(expected Expected) (*Verifier, error) {
	if len(expected.Issuers) == 0 || slices.Contains(expected.Issuers, "") {
		return nil, errors.New("no issuer is expected")
	}
	if len(expected.Audiences) == 0 || slices.Contains(expected.Audiences, "") {
		return nil, errors.New("no audience is expected")
	}
	if expected.Kind != Validating && expected.Kind != Mutating {
		return nil, fmt.Errorf("%q is no kind of webhook configuration", expected.Kind)
	}
	if slices.Contains(expected.Subjects, "") {
		return nil, errors.New("an empty subject is expected")
	}
	switch {
	case expected.Skew > maxSkew:
		return nil, errors.New("clocks may differ by at most five minutes")
	case expected.Skew == 0:
		expected.Skew = time.Minute
	case expected.Skew < 0:
		expected.Skew = 0
	}
	return &Verifier{expected: expected}, nil
}

// Identity is whose token it is and what for: everything about it but whether it fits a request.
type Identity struct {
	// Subject is the service account, as system:serviceaccount:NAMESPACE:NAME.
	Subject       string
	Issuer        string
	Audience      string
	Configuration Configuration
	// Group is the API group that the bearer may ask about: EveryGroup, or one group; "" is the core group.
	Group string
	// ID is the token's own id, which is in the audit log of the API server, too.
	ID      string
	Expires time.Time
}

// Configuration is the webhook configuration that a token is bound to.
type Configuration struct {
	Kind ConfigurationKind
	Name string
	UID  string
}

// Authenticate says whose token it is, if it is good at this time. [Identity.Permits] says for which requests. The error is a
// [*Rejection].
func (v *Verifier) Authenticate(keys *KeySet, token string, now time.Time) (*Identity, error) {
	identity, rejection := v.authenticate(keys, token, now)
	if rejection != nil {
		return nil, rejection
	}
	return identity, nil
}

func (v *Verifier) authenticate(keys *KeySet, token string, now time.Time) (*Identity, *Rejection) {
	if len(token) > maxToken {
		return nil, reject(Oversize, "%d bytes", len(token))
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, reject(Malformed, "not of three parts")
	}
	decoded := make([][]byte, 3)
	for i, part := range parts {
		var ok bool
		if decoded[i], ok = decodeBase64(part); !ok {
			return nil, reject(Malformed, "not base64url")
		}
	}
	header, err := readObject(decoded[0], maxTokenDepth)
	if err != nil {
		return nil, reject(Malformed, "the header is not a plain JSON object")
	}
	algorithm, key, rejection := readHeader(header)
	if rejection != nil {
		return nil, rejection
	}
	payload, err := readObject(decoded[1], maxTokenDepth)
	if err != nil {
		return nil, reject(Malformed, "the claims are not a plain JSON object")
	}
	claims, ok := readClaims(payload)
	if !ok {
		return nil, reject(Malformed, "a claim of the wrong type")
	}
	// A token of another issuer is no reason to fetch new keys. This check can only reject a token, never accept one.
	if !slices.Contains(v.expected.Issuers, claims.issuer) {
		return nil, reject(Issuer, "the token's issuer is %q, but %q is expected", excerpt(claims.issuer), v.expected.Issuers)
	}
	// Nothing else of the payload counts before the signature is verified.
	if rejection := keys.check(key, algorithm, []byte(parts[0]+"."+parts[1]), decoded[2]); rejection != nil {
		return nil, rejection
	}
	if len(claims.audiences) != 1 {
		return nil, reject(Audience, "not for exactly one audience")
	}
	if !slices.Contains(v.expected.Audiences, claims.audiences[0]) {
		return nil, reject(Audience, "for %q", excerpt(claims.audiences[0]))
	}
	if rejection := v.checkTimes(claims, now.Unix()); rejection != nil {
		return nil, rejection
	}
	if claims.kubernetes == nil {
		return nil, reject(Subject, "no claim kubernetes.io")
	}
	if rejection := v.checkSubject(claims); rejection != nil {
		return nil, rejection
	}
	configuration, rejection := claims.kubernetes.configuration()
	if rejection != nil {
		return nil, rejection
	}
	if rejection := v.checkConfiguration(configuration); rejection != nil {
		return nil, rejection
	}
	group, rejection := claims.kubernetes.group()
	if rejection != nil {
		return nil, rejection
	}
	return &Identity{
		Subject:       claims.subject,
		Issuer:        claims.issuer,
		Audience:      claims.audiences[0],
		Configuration: configuration,
		Group:         group,
		ID:            claims.id,
		Expires:       time.Unix(*claims.expires, 0),
	}, nil
}

func readHeader(header map[string]any) (algorithm, key string, rejection *Rejection) {
	for _, extension := range []string{"crit", "b64", "zip"} {
		if _, there := header[extension]; there {
			return "", "", reject(Header, "an extension that is not understood")
		}
	}
	if typ := header["typ"]; typ != nil {
		if text, ok := typ.(string); !ok || !strings.EqualFold(text, "JWT") {
			return "", "", reject(Header, "another type of token")
		}
	}
	algorithm, _ = header["alg"].(string)
	if !isAlgorithm(algorithm) {
		return "", "", reject(Algorithm, "an algorithm that is not on the list")
	}
	key, _ = header["kid"].(string)
	if key == "" {
		return "", "", reject(UnknownKey, "no key is named")
	}
	return algorithm, key, nil
}

func (v *Verifier) checkTimes(claims *claims, now int64) *Rejection {
	skew := int64(v.expected.Skew / time.Second)
	now = max(now, 0)
	switch {
	case claims.expires == nil:
		return reject(Expired, "no end")
	case now-skew >= *claims.expires:
		return reject(Expired, "ended %d s ago", now-*claims.expires)
	case claims.notBefore != nil && now+skew < *claims.notBefore:
		return reject(NotYetValid, "begins in %d s", *claims.notBefore-now)
	case claims.issuedAt == nil:
		return reject(Lifetime, "no time of issue")
	case now+skew < *claims.issuedAt:
		return reject(Lifetime, "issued in the future")
	case *claims.expires-*claims.issuedAt > 600:
		return reject(Lifetime, "lives %d s", *claims.expires-*claims.issuedAt)
	default:
		return nil
	}
}

func (v *Verifier) checkSubject(claims *claims) *Rejection {
	namespace, name := claims.kubernetes.namespace, claims.kubernetes.account
	if namespace == "" || name == "" || claims.subject != "system:serviceaccount:"+namespace+":"+name {
		return reject(Subject, "%q is not the service account of the token", excerpt(claims.subject))
	}
	if len(v.expected.Subjects) > 0 && !slices.Contains(v.expected.Subjects, claims.subject) {
		return reject(OtherSubject, "%q is not let in", claims.subject)
	}
	return nil
}

func (v *Verifier) checkConfiguration(bound Configuration) *Rejection {
	if bound.Kind != v.expected.Kind {
		return reject(WrongKind, "bound to a %s", bound.Kind)
	}
	differs := func(expected, found string) bool { return expected != "" && expected != found }
	if differs(v.expected.Name, bound.Name) || differs(v.expected.UID, bound.UID) {
		return reject(WrongConfiguration, "bound to %q (%q)", bound.Name, bound.UID)
	}
	return nil
}

// dateOf reads seconds since 1970, fractions cut off. ok is false if it is no date.
func dateOf(claims map[string]any, name string) (date *int64, ok bool) {
	const limit = 9_000_000_000_000_000
	switch value := claims[name].(type) {
	case nil:
		return nil, true
	case json.Number:
		seconds, err := strconv.ParseInt(value.String(), 10, 64)
		if err != nil {
			float, err := value.Float64()
			if err != nil || float <= -limit || float >= limit {
				return nil, false
			}
			seconds = int64(float)
		}
		return &seconds, seconds > -limit && seconds < limit
	default:
		return nil, false
	}
}
