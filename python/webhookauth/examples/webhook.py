"""A validating webhook that accepts AdmissionReviews from API servers only.

Within a cluster it finds the keys by itself. Outside, --server, --ca and --token-file say where and how to ask for them. A real
webhook uses a production WSGI server, such as gunicorn, in place of wsgiref.
"""

import argparse
import json
import logging
import ssl
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from webhookauth import VALIDATING, Expected, Middleware, at_server, in_cluster
from webhookauth.middleware import IDENTITY


def validate(environ, start_response):
    """Denies objects that have the label "forbidden"."""
    request = json.loads(environ["wsgi.input"].read())["request"]
    if IDENTITY in environ:
        logging.info("%s asks", environ[IDENTITY].subject)
    labels = (request.get("object") or {}).get("metadata", {}).get("labels") or {}
    response = {"uid": request["uid"], "allowed": "forbidden" not in labels}
    if not response["allowed"]:
        response["status"] = {"message": "the label forbidden is set", "code": 403}
    start_response("200 OK", [("Content-Type", "application/json")])
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return [json.dumps(review).encode()]


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", default="0.0.0.0:8443", help="address to serve on")
    parser.add_argument("--cert", default="tls.crt", help="certificate of the webhook")
    parser.add_argument("--key", default="tls.key", help="private key of the webhook")
    parser.add_argument("--issuer", default="https://kubernetes.default.svc", help="the API server's --service-account-issuer")
    parser.add_argument("--audience", default="https://guard.default.svc:443/validate", help="the address in the configuration")
    parser.add_argument("--server", help="outside of the cluster: the API server, as https://192.0.2.1:6443")
    parser.add_argument("--ca", help="outside of the cluster: the API server's authority, as PEM")
    parser.add_argument("--token-file", help="outside of the cluster: a token of a service account")
    parser.add_argument("--mode", default="require", choices=["off", "observe", "require"])
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)

    if args.server:
        keys = at_server(args.issuer, args.server, args.ca, args.token_file)
    else:
        keys = in_cluster(args.issuer)
    guarded = Middleware(validate, Expected([args.issuer], [args.audience], VALIDATING), keys, args.mode)

    def application(environ, start_response):
        if environ["PATH_INFO"] == "/validate" and environ["REQUEST_METHOD"] == "POST":
            return guarded(environ, start_response)
        if environ["PATH_INFO"] == "/metrics":
            start_response("200 OK", [("Content-Type", "text/plain; version=0.0.4")])
            return [guarded.counts.to_prometheus().encode()]
        start_response("404 Not Found", [])
        return [b""]

    host, _, port = args.listen.rpartition(":")
    server = make_server(host, int(port), application, Server, WSGIRequestHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(args.cert, args.key)
    # The handshake is left to the thread of the connection: a client that does not finish it must not keep others waiting.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    logging.info("serving on %s", args.listen)
    server.serve_forever()


if __name__ == "__main__":
    main()
