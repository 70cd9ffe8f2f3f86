package webhookauth

// claims are the claims of a token that are looked at. A claim of the wrong type makes the token void: otherwise it would count as
// absent, and a token without an end never ends.
type claims struct {
	issuer, subject, id          string
	audiences                    []string
	expires, notBefore, issuedAt *int64
	kubernetes                   *kubernetesClaims
}

type reference struct {
	name, uid string
}

// kubernetesClaims are the claims in kubernetes.io. The names of Kubernetes 1.37 and those of the KEP differ only in case.
type kubernetesClaims struct {
	namespace, account            string
	others                        bool
	validating, kepValidating     *reference
	mutating, kepMutating         *reference
	attestations, kepAttestations map[string][]string
}

func readClaims(payload map[string]any) (*claims, bool) {
	read := &claims{}
	for name, into := range map[string]*string{"iss": &read.issuer, "sub": &read.subject, "jti": &read.id} {
		text, _, ok := stringOf(payload, name)
		if !ok {
			return nil, false
		}
		*into = text
	}
	for name, into := range map[string]**int64{"exp": &read.expires, "nbf": &read.notBefore, "iat": &read.issuedAt} {
		date, ok := dateOf(payload, name)
		if !ok {
			return nil, false
		}
		*into = date
	}
	switch audience := payload["aud"].(type) {
	case nil:
	case string:
		read.audiences = []string{audience}
	default:
		var ok bool
		if read.audiences, ok = stringsOf(audience); !ok {
			return nil, false
		}
	}
	switch value := payload["kubernetes.io"].(type) {
	case nil:
		return read, true
	case map[string]any:
		var ok bool
		read.kubernetes, ok = readKubernetes(value)
		return read, ok
	default:
		return nil, false
	}
}

func readKubernetes(object map[string]any) (*kubernetesClaims, bool) {
	read := &kubernetesClaims{}
	for _, other := range []string{"pod", "secret", "node"} {
		read.others = read.others || object[other] != nil
	}
	if value, there := object["namespace"]; there {
		text, ok := value.(string)
		if !ok {
			return nil, false
		}
		read.namespace = text
	}
	var account *reference
	for name, into := range map[string]**reference{
		"serviceaccount":                 &account,
		"validatingwebhookconfiguration": &read.validating,
		"validatingWebhookConfiguration": &read.kepValidating,
		"mutatingwebhookconfiguration":   &read.mutating,
		"mutatingWebhookConfiguration":   &read.kepMutating,
	} {
		reference, ok := referenceOf(object[name])
		if !ok {
			return nil, false
		}
		*into = reference
	}
	if account != nil {
		read.account = account.name
	}
	for name, into := range map[string]*map[string][]string{
		"attestations":      &read.attestations,
		"attestationClaims": &read.kepAttestations,
	} {
		attested, ok := attestationsOf(object[name])
		if !ok {
			return nil, false
		}
		*into = attested
	}
	return read, true
}

func referenceOf(value any) (*reference, bool) {
	if value == nil {
		return nil, true
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	read := &reference{}
	for name, into := range map[string]*string{"name": &read.name, "uid": &read.uid} {
		if value, there := object[name]; there {
			text, ok := value.(string)
			if !ok {
				return nil, false
			}
			*into = text
		}
	}
	return read, true
}

func attestationsOf(value any) (map[string][]string, bool) {
	if value == nil {
		return nil, true
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	read := map[string][]string{}
	for name, value := range object {
		if read[name], ok = stringsOf(value); !ok {
			return nil, false
		}
	}
	return read, true
}

func stringsOf(value any) ([]string, bool) {
	list, ok := value.([]any)
	if !ok {
		return nil, false
	}
	read := make([]string, 0, len(list))
	for _, item := range list {
		text, ok := item.(string)
		if !ok {
			return nil, false
		}
		read = append(read, text)
	}
	return read, true
}

func (k *kubernetesClaims) configuration() (Configuration, *Rejection) {
	validating, rejection := agreed(k.validating, k.kepValidating)
	if rejection != nil {
		return Configuration{}, rejection
	}
	mutating, rejection := agreed(k.mutating, k.kepMutating)
	if rejection != nil {
		return Configuration{}, rejection
	}
	if k.others {
		return Configuration{}, reject(BoundTwice, "bound to a pod, a secret or a node")
	}
	kind, bound := Validating, validating
	switch {
	case validating != nil && mutating != nil:
		return Configuration{}, reject(BoundTwice, "bound to configurations of both kinds")
	case validating == nil && mutating == nil:
		return Configuration{}, reject(NotBound, "bound to no configuration")
	case mutating != nil:
		kind, bound = Mutating, mutating
	}
	if bound.name == "" || bound.uid == "" {
		return Configuration{}, reject(NotBound, "bound to a configuration without name or uid")
	}
	return Configuration{Kind: kind, Name: bound.name, UID: bound.uid}, nil
}

func (k *kubernetesClaims) group() (string, *Rejection) {
	one := func(attested map[string][]string, field, key string) (*string, *Rejection) {
		if attested == nil {
			return nil, nil
		}
		groups := attested[key]
		if len(groups) != 1 {
			return nil, reject(NoGroup, "%s does not name exactly one group", field)
		}
		return &groups[0], nil
	}
	ours, rejection := one(k.attestations, "attestations", "admissionReviewAPIGroups")
	if rejection != nil {
		return "", rejection
	}
	kep, rejection := one(k.kepAttestations, "attestationClaims", "webhook-authentication.k8s.io/allowedAPIGroup")
	if rejection != nil {
		return "", rejection
	}
	group, rejection := agreed(ours, kep)
	if rejection != nil {
		return "", rejection
	}
	if group == nil {
		return "", reject(NoGroup, "no group is attested")
	}
	if *group == "" && kep == nil {
		return "", reject(NoGroup, "the core group cannot be attested in these claims")
	}
	return *group, nil
}

// agreed is what is said in one set of claims or in both, if it is the same.
func agreed[T comparable](one, other *T) (*T, *Rejection) {
	switch {
	case one == nil:
		return other, nil
	case other != nil && *one != *other:
		return nil, reject(Disagreement, "the two sets of claims differ")
	default:
		return one, nil
	}
}
