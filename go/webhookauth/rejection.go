package webhookauth

import (
	"fmt"
	"net/http"
)

// Reason says why a caller is refused, as one of a fixed list: what is counted.
type Reason string

// The reasons, in the order in which a token is examined.
const (
	Missing            Reason = "missing"             // there is no bearer token
	Oversize           Reason = "oversize"            // the token is longer than any token of an API server
	Malformed          Reason = "malformed"           // it is no JWT, or one that two readers could read differently
	Algorithm          Reason = "algorithm"           // its algorithm is not on the list, or is not that of the key
	Header             Reason = "header"              // its header has an extension that is not understood
	UnknownKey         Reason = "unknown_key"         // it names no key, or one that the issuer does not publish
	Signature          Reason = "signature"           // the signature is not that of the key
	Issuer             Reason = "issuer"              // another issuer made it
	Audience           Reason = "audience"            // it is for another webhook, or for several
	Expired            Reason = "expired"             // it has ended, or does not say when it ends
	NotYetValid        Reason = "not_yet_valid"       // it may not be used yet
	Lifetime           Reason = "lifetime"            // it was issued in the future, or lives longer than ten minutes
	Subject            Reason = "subject"             // its subject is not the service account that it names
	OtherSubject       Reason = "other_subject"       // the subject is not one of Expected.Subjects
	NotBound           Reason = "not_bound"           // it is bound to no webhook configuration
	BoundTwice         Reason = "bound_twice"         // it is bound to more than one object
	WrongKind          Reason = "wrong_kind"          // it is bound to a configuration of the other kind
	WrongConfiguration Reason = "wrong_configuration" // it is bound to a configuration of another name or uid
	NoGroup            Reason = "no_group"            // it does not attest exactly one API group
	Disagreement       Reason = "disagreement"        // its two sets of claims differ
	Group              Reason = "group"               // it is not for the API group of the request
	KeysUnavailable    Reason = "keys_unavailable"    // there are no keys to verify it with
)

// Reasons are all reasons.
var Reasons = []Reason{
	Missing, Oversize, Malformed, Algorithm, Header, UnknownKey, Signature, Issuer, Audience, Expired, NotYetValid, Lifetime,
	Subject, OtherSubject, NotBound, BoundTwice, WrongKind, WrongConfiguration, NoGroup, Disagreement, Group, KeysUnavailable,
}

// Status is the HTTP status of the answer: 403 for a known caller that asks about another group, 503 where the webhook has no keys,
// 401 for all others.
func (r Reason) Status() int {
	switch r {
	case Group:
		return http.StatusForbidden
	case KeysUnavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusUnauthorized
	}
}

// Rejection says why a caller is refused. Its text is for the webhook's log: the caller gets the status and nothing else.
type Rejection struct {
	Reason Reason
	Detail string
}

func (r *Rejection) Error() string {
	return fmt.Sprintf("%s: %s", r.Reason, r.Detail)
}

func reject(reason Reason, format string, arguments ...any) *Rejection {
	return &Rejection{Reason: reason, Detail: fmt.Sprintf(format, arguments...)}
}

// excerpt returns the beginning of an untrusted text.
func excerpt(text string) string {
	const most = 256
	if len(text) <= most {
		return text
	}
	return text[:most] + "…"
}
