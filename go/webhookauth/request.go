package webhookauth

import "errors"

// The ways in which a review cannot be read.
var (
	ErrReviewMalformed = errors.New("not an AdmissionReview with a request")
	ErrReviewVersion   = errors.New("not a known version of AdmissionReview")
)

// Request is the part of an AdmissionReview that is compared with a token.
type Request struct {
	UID                              string
	ResourceGroup                    string
	KindGroup, KindVersion, KindKind string
	Subresource                      string
}

// ParseReview reads the request of an AdmissionReview. A body in which a field comes twice is refused: the webhook might read the
// other one.
func ParseReview(body []byte) (*Request, error) {
	review, err := readObject(body, maxReviewDepth)
	if err != nil {
		return nil, ErrReviewMalformed
	}
	request, ok := review["request"].(map[string]any)
	if !ok || review["kind"] != "AdmissionReview" {
		return nil, ErrReviewMalformed
	}
	resource, ok := request["resource"].(map[string]any)
	if !ok {
		return nil, ErrReviewMalformed
	}
	kind := map[string]any{}
	if value, there := request["kind"]; there {
		if kind, ok = value.(map[string]any); !ok {
			return nil, ErrReviewMalformed
		}
	}
	read := &Request{}
	for _, field := range []struct {
		of   map[string]any
		name string
		into *string
	}{
		{request, "uid", &read.UID},
		{resource, "group", &read.ResourceGroup},
		{resource, "version", new(string)},
		{resource, "resource", new(string)},
		{kind, "group", &read.KindGroup},
		{kind, "version", &read.KindVersion},
		{kind, "kind", &read.KindKind},
	} {
		if value, there := field.of[field.name]; there {
			text, ok := value.(string)
			if !ok {
				return nil, ErrReviewMalformed
			}
			*field.into = text
		}
	}
	if read.Subresource, _, ok = stringOf(request, "subResource"); !ok {
		return nil, ErrReviewMalformed
	}
	switch version, _ := review["apiVersion"].(string); version {
	case "admission.k8s.io/v1", "admission.k8s.io/v1beta1":
		return read, nil
	case "":
		return nil, ErrReviewMalformed
	default:
		return nil, ErrReviewVersion
	}
}

// group is the API group that the request is about. The kind must be of the same group, since webhooks decide by it, too, unless it
// is one that other groups use for their subresources (a Scale of autoscaling for a Deployment of apps).
func (r *Request) group() (string, bool) {
	coherent := r.KindGroup == r.ResourceGroup || r.KindGroup == "" && r.KindVersion == "" && r.KindKind == ""
	if r.Subresource != "" {
		switch r.KindGroup + "/" + r.KindKind {
		case "autoscaling/Scale", "policy/Eviction", "authentication.k8s.io/TokenRequest":
			coherent = true
		}
	}
	return r.ResourceGroup, coherent
}

// Permits says whether the token is for the API group that the request is about. The error is a [*Rejection].
func (i *Identity) Permits(request *Request) error {
	if i.Group == EveryGroup {
		return nil
	}
	if group, ok := request.group(); ok && group == i.Group {
		return nil
	}
	return reject(Group, "the token of %q is for %q, the request is about resource group %q and kind group %q",
		i.Subject, i.Group, excerpt(request.ResourceGroup), excerpt(request.KindGroup))
}
