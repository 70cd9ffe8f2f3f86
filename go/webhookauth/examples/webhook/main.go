// A validating webhook that accepts AdmissionReviews from API servers only.
//
// Within a cluster it finds the keys by itself. Outside, -server, -ca and -token-file say where and how to ask for them.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"os"

	"example.com/portcullis/webhookauth"
)

func main() {
	listen := flag.String("listen", ":8443", "address to serve on")
	certificate := flag.String("cert", "tls.crt", "certificate of the webhook")
	key := flag.String("key", "tls.key", "private key of the webhook")
	issuer := flag.String("issuer", "https://kubernetes.default.svc", "the API server's --service-account-issuer")
	audience := flag.String("audience", "https://guard.default.svc:443/validate", "the webhook's address, as in its configuration")
	server := flag.String("server", "", "outside of the cluster: the API server, as https://192.0.2.1:6443")
	authorities := flag.String("ca", "", "outside of the cluster: the API server's authority, as PEM")
	tokenFile := flag.String("token-file", "", "outside of the cluster: a token of a service account")
	mode := flag.String("mode", "require", "off, observe or require")
	flag.Parse()

	keys, err := fetchedKeys(*issuer, *server, *authorities, *tokenFile)
	if err != nil {
		log.Fatal(err)
	}
	expected := webhookauth.Expected{
		Issuers:   []string{*issuer},
		Audiences: []string{*audience},
		Kind:      webhookauth.Validating,
	}
	middleware, err := webhookauth.NewMiddleware(expected, keys, webhookauth.Mode(*mode))
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /validate", middleware.Wrap(http.HandlerFunc(validate)))
	http.Handle("GET /metrics", middleware.Counts())
	log.Printf("serving on %s", *listen)
	log.Fatal(http.ListenAndServeTLS(*listen, *certificate, *key, nil))
}

func fetchedKeys(issuer, server, authorities, tokenFile string) (*webhookauth.KeyCache, error) {
	if server == "" {
		return webhookauth.InCluster(issuer)
	}
	pem, err := os.ReadFile(authorities)
	if err != nil {
		return nil, err
	}
	return webhookauth.AtServer(issuer, server, pem, tokenFile)
}

// validate denies objects that have the label "forbidden".
func validate(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID    string `json:"uid"`
			Object struct {
				Metadata struct {
					Labels map[string]string `json:"labels"`
				} `json:"metadata"`
			} `json:"object"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, "not a review", http.StatusBadRequest)
		return
	}
	if identity := webhookauth.IdentityOf(r); identity != nil {
		log.Printf("%s asks", identity.Subject)
	}
	_, forbidden := review.Request.Object.Metadata.Labels["forbidden"]
	response := map[string]any{"uid": review.Request.UID, "allowed": !forbidden}
	if forbidden {
		response["status"] = map[string]any{"message": "the label forbidden is set", "code": 403}
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
	})
}
