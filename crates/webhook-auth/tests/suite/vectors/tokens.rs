//! Generates the tokens of the test vectors with their expected results.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use webhook_auth::verify::MAX_TOKEN;

use crate::issuer::{AUDIENCE, ISSUER, Key, NOW, UID, changed, claims, hmac_token, jwks};

/// The issuer's keys, and an attacker's key that reuses the id of one of them.
pub(super) struct Signers {
    pub(super) ec: Key,
    pub(super) rsa: Key,
    p384: Key,
    p521: Key,
    /// An EC key with the id of the RSA key.
    twin: Key,
    stranger: Key,
}

impl Signers {
    pub(super) fn new() -> Self {
        Signers {
            ec: Key::ec("ec"),
            rsa: Key::rsa("rsa"),
            p384: Key::p384("p384"),
            p521: Key::p521("p521"),
            twin: Key::ec("rsa"),
            stranger: Key::ec("ec"),
        }
    }

    pub(super) fn published(&self) -> [&Key; 5] {
        [&self.ec, &self.rsa, &self.p384, &self.p521, &self.twin]
    }
}

/// An AdmissionReview about a resource and a kind.
pub(super) fn review(group: &str, kind_group: &str, resource: &str, kind: &str, subresource: &str) -> Value {
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": kind_group, "version": "v1", "kind": kind},
            "resource": {"group": group, "version": "v1", "resource": resource},
            "operation": "CREATE",
        },
    });
    if !subresource.is_empty() {
        review["request"]["subResource"] = json!(subresource);
    }
    review
}

struct Cases<'a> {
    keys: &'a Signers,
    all: Vec<Value>,
}

impl Cases<'_> {
    fn add(&mut self, name: &str, token: String, result: &str) -> &mut Value {
        let status = match result {
            "accepted" => 200,
            "group" => 403,
            _ => 401,
        };
        self.all
            .push(json!({"name": name, "token": Value::String(token), "result": result, "status": status}));
        self.all.last_mut().unwrap()
    }

    /// Adds a token with these claims, signed by the issuer's EC key.
    fn signed(&mut self, name: &str, claims: &Value, result: &str) -> &mut Value {
        let token = self.keys.ec.token(claims);
        self.add(name, token, result)
    }

    /// Adds a token for the group `apps` with changed claims.
    fn with(&mut self, name: &str, result: &str, change: impl FnOnce(&mut Value)) {
        self.signed(name, &changed("apps", change), result);
    }
}

fn remove(claims: &mut Value, field: &str) {
    claims.as_object_mut().unwrap().remove(field).unwrap();
}

pub(super) fn cases(keys: &Signers) -> Vec<Value> {
    let mut cases = Cases { keys, all: Vec::new() };
    algorithms(&mut cases);
    parts(&mut cases);
    times(&mut cases);
    bindings(&mut cases);
    groups(&mut cases);
    cases.all
}

fn algorithms(cases: &mut Cases<'_>) {
    let keys = cases.keys;
    let every = claims("*");
    for key in [&keys.ec, &keys.rsa, &keys.p384, &keys.p521] {
        let case = cases.add(&format!("a token of {}", key.algorithm()), key.token(&every), "accepted");
        case["identity"] = json!({
            "subject": "system:serviceaccount:kube-system:webhook-auth", "issuer": ISSUER, "audience": AUDIENCE, "group": "*",
            "configuration": {"kind": "ValidatingWebhookConfiguration", "name": "guard", "uid": UID},
        });
    }
    cases.add("the other key of the same id", keys.twin.token(&every), "accepted");
    for none in ["none", "NONE", ""] {
        let token = keys.ec.token_with(&json!({"alg": none, "kid": "ec"}), &every);
        let (signed, _) = token.rsplit_once('.').unwrap();
        cases.add(&format!("algorithm {none:?} without a signature"), format!("{signed}."), "algorithm");
    }
    let public = keys.rsa.jwk()["n"].as_str().unwrap().to_owned();
    cases.add(
        "the public key as a shared secret",
        hmac_token("rsa", &URL_SAFE_NO_PAD.decode(&public).unwrap(), &every),
        "algorithm",
    );
    cases.add("the key set as a shared secret", hmac_token("rsa", &jwks(&[&keys.rsa]), &every), "algorithm");
    for other in ["HS512", "PS256", "RS512", "EdDSA", "es256"] {
        let token = keys.rsa.token_with(&json!({"alg": other, "kid": "rsa"}), &every);
        cases.add(&format!("algorithm {other}"), token, "algorithm");
    }
    let ec = |header: Value| keys.ec.token_with(&header, &every);
    cases.add("the algorithm of another curve", ec(json!({"alg": "ES384", "kid": "ec"})), "algorithm");
    cases.add("no algorithm", ec(json!({"kid": "ec"})), "algorithm");
    cases.add("a list of algorithms", ec(json!({"alg": ["ES256"], "kid": "ec"})), "algorithm");
    cases.add("another key's signature", ec(json!({"alg": "RS256", "kid": "rsa"})), "signature");
    cases.add("a stranger's signature", keys.stranger.token(&every), "signature");
    let own =
        json!({"alg": "ES256", "kid": "ec", "jwk": keys.stranger.jwk(), "jku": "https://elsewhere.example"});
    cases.add("a stranger's key in the header", keys.stranger.token_with(&own, &every), "signature");
    cases.add("an unknown key", ec(json!({"alg": "ES256", "kid": "other"})), "unknown_key");
    cases.add("no key id", ec(json!({"alg": "ES256"})), "unknown_key");
    cases.add("an empty key id", ec(json!({"alg": "ES256", "kid": ""})), "unknown_key");
    cases.add("a key id that is a number", ec(json!({"alg": "ES256", "kid": 1})), "unknown_key");
    for (name, more, result) in [
        ("typ JWT", json!({"typ": "JWT"}), "accepted"),
        ("typ jwt", json!({"typ": "jwt"}), "accepted"),
        ("unknown fields in the header", json!({"cty": "x", "unknown": 1}), "accepted"),
        ("crit", json!({"crit": ["exp"]}), "header"),
        ("crit that is null", json!({"crit": null}), "header"),
        ("b64", json!({"b64": false}), "header"),
        ("zip", json!({"zip": "DEF"}), "header"),
        ("another type", json!({"typ": "at+jwt"}), "header"),
        ("a type that is a number", json!({"typ": 1}), "header"),
    ] {
        let mut header = json!({"alg": "ES256", "kid": "ec"});
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        cases.add(name, ec(header), result);
    }
}

fn parts(cases: &mut Cases<'_>) {
    let key = &cases.keys.ec;
    let (header, every) = (r#"{"alg":"ES256","kid":"ec"}"#, claims("*").to_string());
    let good = key.sign_text(header, &every);
    for (name, token) in [
        ("nothing", String::new()),
        ("two parts", "a.b".to_owned()),
        ("four parts", format!("{good}.x")),
        ("no base64", "a.b.!".to_owned()),
        ("a space in front", format!(" {good}")),
        ("a line break behind", format!("{good}\n")),
        ("a line break within", good.replacen('.', "\n.", 1)),
        ("padding", format!("{good}=")),
        ("padding of every part", good.replace('.', "=.")),
        ("base64 with plus and slash", good.replacen('.', "+/.", 1)),
    ] {
        cases.add(name, token, "malformed");
    }
    // The last base64 character of the signature has two unused bits, which must be zero.
    let (front, last) = good.split_at(good.len() - 1);
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let next = alphabet.find(last).unwrap() + 1;
    cases.add(
        "bits behind the signature",
        format!("{front}{}", alphabet.chars().nth(next).unwrap()),
        "malformed",
    );
    let (signed, _) = good.rsplit_once('.').unwrap();
    cases.add("an empty signature", format!("{signed}."), "signature");
    cases.add("a short signature", format!("{signed}.AAAA"), "signature");
    let zeros = URL_SAFE_NO_PAD.encode([0; 64]);
    cases.add("a signature of zeros", format!("{signed}.{zeros}"), "signature");
    let other = key.token(&claims("apps"));
    cases.add(
        "the signature of another token",
        format!("{signed}.{}", other.rsplit_once('.').unwrap().1),
        "signature",
    );
    cases.add("white space around the header", key.sign_text(&format!(" {header}\n"), &every), "accepted");
    for (name, twice) in [
        ("the end twice", r#""exp":1,"#),
        ("an unknown claim twice", r#""a":1,"a":1,"#),
        ("a claim twice, further down", r#""a":{"b":1,"b":2},"#),
        ("a claim twice, once escaped", r#""a":[{"b":1,"\u0062":2}],"#),
        ("a lone surrogate", r#""a":"\ud800","#),
        ("not a number", r#""a":NaN,"#),
        ("a number beyond all numbers", r#""exp":1e999,"x":"#),
    ] {
        let claims = every.replacen('{', &format!("{{{twice}"), 1);
        cases.add(name, key.sign_text(header, &claims), "malformed");
    }
    let twice = r#"{"alg":"none","alg":"ES256","kid":"ec"}"#;
    cases.add("the algorithm twice", key.sign_text(twice, &every), "malformed");
    for (name, odd) in [("a list", "[]"), ("null", "null"), ("half an object", "{"), ("two objects", "{}{}")]
    {
        cases.add(&format!("claims: {name}"), key.sign_text(header, odd), "malformed");
        cases.add(&format!("header: {name}"), key.sign_text(odd, &every), "malformed");
    }
    let bytes = [every.as_bytes().strip_suffix(b"}").unwrap(), b",\"a\":\"\xff\"}"].concat();
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(bytes));
    let signature = URL_SAFE_NO_PAD.encode(key.signature(signed.as_bytes()));
    cases.add("claims that are not UTF-8", format!("{signed}.{signature}"), "malformed");
    cases.add("longer than any token", "x".repeat(MAX_TOKEN + 1), "oversize");
}

fn times(cases: &mut Cases<'_>) {
    for (name, now, result) in [
        ("its last second, and a minute for clocks", NOW + 659, "accepted"),
        ("a minute after its end", NOW + 660, "expired"),
        ("a minute before its begin", NOW - 60, "accepted"),
        ("more than a minute before its begin", NOW - 61, "not_yet_valid"),
    ] {
        cases.signed(name, &claims("*"), result)["now"] = json!(now);
    }
    let case = cases.signed("its end, to the second", &claims("*"), "expired");
    case["now"] = json!(NOW + 600);
    case["expected"] = json!({"skewSeconds": 0});
    cases.with("no end", "expired", |c| remove(c, "exp"));
    cases.with("an end that is null", "expired", |c| c["exp"] = json!(null));
    cases.with("no time of issue", "lifetime", |c| remove(c, "iat"));
    cases.with("no begin", "accepted", |c| remove(c, "nbf"));
    cases.with("a life of more than ten minutes", "lifetime", |c| c["exp"] = json!(NOW + 601));
    cases.with("issued in the future", "lifetime", |c| c["iat"] = json!(NOW + 61));
    cases.with("an end with a fraction", "accepted", |c| c["exp"] = json!(600.5 + 1.8e9));
    cases.with("an end far away", "malformed", |c| c["exp"] = json!(i64::MAX));
    for odd in [json!("1800000600"), json!([1]), json!(true)] {
        cases.with(&format!("an end that is {odd}"), "malformed", |c| c["exp"] = odd.clone());
    }
    cases.with("another issuer", "issuer", |c| c["iss"] = json!("https://elsewhere.example"));
    cases.with("the issuer with a slash", "issuer", |c| c["iss"] = json!(format!("{ISSUER}/")));
    cases.with("no issuer", "issuer", |c| remove(c, "iss"));
    cases.with("a list of issuers", "malformed", |c| c["iss"] = json!([ISSUER]));
}

fn bindings(cases: &mut Cases<'_>) {
    cases.with("the audience as a text", "accepted", |c| c["aud"] = json!(AUDIENCE));
    for (name, other) in [
        ("another path", json!([format!("{AUDIENCE}/")])),
        ("no port", json!(["https://guard.default.svc/admission/review"])),
        ("upper case", json!(["https://GUARD.default.svc:443/admission/review"])),
        ("two audiences", json!([AUDIENCE, "https://other.default.svc:443/"])),
        ("the audience twice", json!([AUDIENCE, AUDIENCE])),
        ("no audience in the list", json!([])),
        ("an audience that is null", json!(null)),
    ] {
        cases.with(name, "audience", |c| c["aud"] = other);
    }
    cases.with("an audience that is an object", "malformed", |c| c["aud"] = json!({"a": AUDIENCE}));
    for (name, subject) in [
        ("another account", "system:serviceaccount:kube-system:other"),
        ("a user", "webhook-auth"),
        ("no subject", ""),
    ] {
        cases.with(name, "subject", |c| c["sub"] = json!(subject));
    }
    cases.with("no claims of Kubernetes", "subject", |c| remove(c, "kubernetes.io"));
    cases.with("no account", "subject", |c| remove(&mut c["kubernetes.io"], "serviceaccount"));
    let rebind = |c: &mut Value, keep: bool| {
        for (from, to) in [
            ("validatingwebhookconfiguration", "mutatingwebhookconfiguration"),
            ("validatingWebhookConfiguration", "mutatingWebhookConfiguration"),
        ] {
            c["kubernetes.io"][to] = c["kubernetes.io"][from].clone();
            if !keep {
                remove(&mut c["kubernetes.io"], from);
            }
        }
    };
    cases.with("bound to the other kind", "wrong_kind", |c| rebind(c, false));
    cases.with("bound to both kinds", "bound_twice", |c| rebind(c, true));
    let mutating = changed("*", |c| rebind(c, false));
    cases.signed("bound to a mutating configuration, as expected", &mutating, "accepted")["expected"] =
        json!({"kind": "MutatingWebhookConfiguration"});
    for other in ["pod", "secret", "node"] {
        cases.with(&format!("also bound to a {other}"), "bound_twice", |c| {
            c["kubernetes.io"][other] = json!({"name": "x", "uid": "y"});
        });
    }
    cases.with("bound to nothing", "not_bound", |c| {
        remove(&mut c["kubernetes.io"], "validatingwebhookconfiguration");
        remove(&mut c["kubernetes.io"], "validatingWebhookConfiguration");
    });
    for (name, nameless) in
        [("without a uid", json!({"name": "guard"})), ("without a name", json!({"uid": UID}))]
    {
        cases.with(&format!("bound to a configuration {name}"), "not_bound", |c| {
            c["kubernetes.io"]["validatingwebhookconfiguration"] = nameless.clone();
            c["kubernetes.io"]["validatingWebhookConfiguration"] = nameless;
        });
    }
    let own = "system:serviceaccount:kube-system:webhook-auth";
    for (name, expected, result) in [
        ("the expected name", json!({"name": "guard"}), "accepted"),
        ("another name", json!({"name": "other"}), "wrong_configuration"),
        ("the expected uid", json!({"uid": UID}), "accepted"),
        ("another uid", json!({"uid": "other"}), "wrong_configuration"),
        ("an expected subject", json!({"subjects": ["system:serviceaccount:a:b", own]}), "accepted"),
        (
            "a subject that is not expected",
            json!({"subjects": ["system:serviceaccount:a:b"]}),
            "other_subject",
        ),
        ("one of two audiences", json!({"audiences": ["https://other.example/", AUDIENCE]}), "accepted"),
        ("one of two issuers", json!({"issuers": ["https://new.example", ISSUER]}), "accepted"),
    ] {
        cases.signed(name, &claims("*"), result)["expected"] = expected;
    }
}

fn groups(cases: &mut Cases<'_>) {
    let ours = |c: &mut Value, value: Value| c["kubernetes.io"]["attestations"] = value;
    let kep = |c: &mut Value, value: Value| c["kubernetes.io"]["attestationClaims"] = value;
    let without = |fields: [&str; 2]| {
        changed("apps", |c| fields.iter().for_each(|field| remove(&mut c["kubernetes.io"], field)))
    };
    cases.signed(
        "only the KEP's claims",
        &without(["attestations", "validatingwebhookconfiguration"]),
        "accepted",
    );
    cases.signed(
        "only Kubernetes' claims",
        &without(["attestationClaims", "validatingWebhookConfiguration"]),
        "accepted",
    );
    cases.signed("no attestation", &without(["attestations", "attestationClaims"]), "no_group");
    cases.with("groups that differ", "disagreement", |c| ours(c, json!({"admissionReviewAPIGroups": ["*"]})));
    cases.with("configurations that differ", "disagreement", |c| {
        c["kubernetes.io"]["validatingWebhookConfiguration"] = json!({"name": "guard", "uid": "other"});
    });
    cases.with("two groups", "no_group", |c| ours(c, json!({"admissionReviewAPIGroups": ["apps", "*"]})));
    cases.with("no groups", "no_group", |c| ours(c, json!({"admissionReviewAPIGroups": []})));
    cases.with("another key", "no_group", |c| kep(c, json!({"allowedAPIGroup": ["apps"]})));
    cases.with("a group that is no list", "malformed", |c| {
        ours(c, json!({"admissionReviewAPIGroups": "apps"}));
    });
    cases
        .with("a group that is a number", "malformed", |c| ours(c, json!({"admissionReviewAPIGroups": [1]})));
    let core = changed("", |c| remove(&mut c["kubernetes.io"], "attestationClaims"));
    cases.signed("the core group in Kubernetes' claims alone", &core, "no_group");

    let turtles = "ninja.turtles.ai";
    for (name, group, review, result) in [
        (
            "the group of the request",
            turtles,
            review(turtles, turtles, "ninjaturtles", "NinjaTurtle", ""),
            "accepted",
        ),
        ("another group", turtles, review("", "", "secrets", "Secret", ""), "group"),
        (
            "the end of the group",
            turtles,
            review("turtles.ai", "turtles.ai", "ninjaturtles", "NinjaTurtle", ""),
            "group",
        ),
        (
            "the group in other case",
            turtles,
            review("Ninja.turtles.ai", "Ninja.turtles.ai", "ninjaturtles", "NinjaTurtle", ""),
            "group",
        ),
        ("a request about the group *", turtles, review("*", "*", "pods", "Pod", ""), "group"),
        ("a kind of another group", turtles, review(turtles, "", "ninjaturtles", "Secret", ""), "group"),
        (
            "a scale of the group",
            turtles,
            review(turtles, "autoscaling", "ninjaturtles", "Scale", "scale"),
            "accepted",
        ),
        (
            "a scale that is no subresource",
            turtles,
            review(turtles, "autoscaling", "ninjaturtles", "Scale", ""),
            "group",
        ),
        (
            "another kind as a subresource",
            turtles,
            review(turtles, "", "ninjaturtles", "Secret", "scale"),
            "group",
        ),
        ("every group", "*", review("", "", "secrets", "Secret", ""), "accepted"),
        ("the core group", "", review("", "", "secrets", "Secret", ""), "accepted"),
        (
            "the core group, about another",
            "",
            review("apps", "apps", "deployments", "Deployment", ""),
            "group",
        ),
    ] {
        cases.signed(&format!("for {group:?}: {name}"), &claims(group), result)["review"] = review;
    }
}
