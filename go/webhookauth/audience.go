package webhookauth

import (
	"fmt"
	"strings"
)

// ClientConfig is the clientConfig of a webhook, as far as the audience goes.
type ClientConfig struct {
	URL     *string           `json:"url,omitempty"`
	Service *ServiceReference `json:"service,omitempty"`
}

// ServiceReference names a Service of the cluster.
type ServiceReference struct {
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Path      *string `json:"path,omitempty"`
	Port      *int32  `json:"port,omitempty"`
}

// Audience is the audience of tokens for this webhook: the URL as it is written, or https://NAME.NAMESPACE.svc:PORT/PATH with port
// 443 and path / where they are not set. ok is false if neither is given, or both.
func (c ClientConfig) Audience() (audience string, ok bool) {
	switch {
	case c.URL != nil && c.Service == nil:
		return *c.URL, true
	case c.URL == nil && c.Service != nil:
		return ServiceAudience(*c.Service), true
	default:
		return "", false
	}
}

// ServiceAudience is the audience of tokens for a webhook behind a Service.
func ServiceAudience(service ServiceReference) string {
	port, path := int32(443), ""
	if service.Port != nil {
		port = *service.Port
	}
	if service.Path != nil {
		path = *service.Path
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return fmt.Sprintf("https://%s.%s.svc:%d%s", service.Name, service.Namespace, port, path)
}
