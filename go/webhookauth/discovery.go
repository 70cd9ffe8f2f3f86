package webhookauth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

const (
	providerPath = "/.well-known/openid-configuration"
	jwksPath     = "/openid/v1/jwks"
	jwksType     = "application/jwk-set+json"
	apiServer    = "https://kubernetes.default.svc"
	podFolder    = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// The ways in which a provider document is of no use. [IssuerError] is a further one.
var (
	ErrProviderMalformed = errors.New("the provider document is malformed")
	ErrProviderAddress   = errors.New("the provider document names no https address of keys")
)

// IssuerError says that a provider document is another issuer's.
type IssuerError struct {
	Found, Expected string
}

func (e *IssuerError) Error() string {
	return fmt.Sprintf("the issuer is %q, but %q is expected", e.Found, e.Expected)
}

// ParseProvider reads the OpenID provider document of an issuer and returns the address of its keys.
func ParseProvider(document []byte, issuer string) (jwksURI string, err error) {
	if len(document) > maxDocument {
		return "", ErrProviderMalformed
	}
	object, err := readObject(document, maxTokenDepth)
	if err != nil {
		return "", ErrProviderMalformed
	}
	found, ok := object["issuer"].(string)
	jwksURI, ok2 := object["jwks_uri"].(string)
	switch {
	case !ok || !ok2:
		return "", ErrProviderMalformed
	case found != issuer:
		return "", &IssuerError{Found: excerpt(found), Expected: issuer}
	case !strings.HasPrefix(jwksURI, "https://"):
		return "", ErrProviderAddress
	default:
		return jwksURI, nil
	}
}

// Discovery fetches the keys of an issuer over HTTPS.
type Discovery struct {
	// Issuer is the issuer that the provider document must name.
	Issuer string
	// Server is asked for both documents, as https://192.0.2.1:6443. If it is empty, the issuer is asked, and its document says
	// where the keys are.
	Server string
	// RootCAs verify the server's certificate; the system's if nil.
	RootCAs *x509.CertPool
	// TokenFile holds the bearer token for Server. It is read each time, because it is renewed, and sent nowhere else.
	TokenFile string
}

// Fetch fetches the keys: it is a [FetchKeys].
func (d Discovery) Fetch(ctx context.Context) (*KeySet, error) {
	client := &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: d.RootCAs, MinVersion: tls.VersionTLS12},
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       fetchTimeout,
	}
	base := d.Server
	if base == "" {
		base = d.Issuer
	}
	base = strings.TrimRight(base, "/")
	document, err := d.get(ctx, client, base+providerPath, "application/json")
	if err != nil {
		return nil, err
	}
	address, err := ParseProvider(document, d.Issuer)
	if err != nil {
		return nil, err
	}
	if d.Server != "" {
		address = base + jwksPath
	}
	document, err = d.get(ctx, client, address, jwksType)
	if err != nil {
		return nil, err
	}
	return ParseKeySet(document)
}

func (d Discovery) get(ctx context.Context, client *http.Client, address, accept string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	if request.URL.Scheme != "https" {
		return nil, fmt.Errorf("%q is no https address", address)
	}
	request.Header.Set("Accept", accept)
	if d.TokenFile != "" && d.Server != "" && sameServer(d.Server, request.URL) {
		token, err := os.ReadFile(d.TokenFile)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", address, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
}

func sameServer(server string, address *url.URL) bool {
	parsed, err := url.Parse(server)
	return err == nil && parsed.Scheme == address.Scheme && parsed.Host == address.Host
}

// InCluster returns the keys of the cluster that this pod runs in, from its API server, with the pod's own service account.
func InCluster(issuer string) (*KeyCache, error) {
	pem, err := os.ReadFile(filepath.Join(podFolder, "ca.crt"))
	if err != nil {
		return nil, err
	}
	return AtServer(issuer, apiServer, pem, filepath.Join(podFolder, "token"))
}

// AtServer returns the keys of an issuer from an API server outside of the cluster. authorities are PEM certificates that verify
// the server; tokenFile holds a bearer token of a user that may read the discovery documents.
func AtServer(issuer, server string, authorities []byte, tokenFile string) (*KeyCache, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		return nil, errors.New("no authority to trust")
	}
	return NewKeyCache(Discovery{Issuer: issuer, Server: server, RootCAs: roots, TokenFile: tokenFile}.Fetch), nil
}
