//! Decodes the fields of a configuration, with the error messages of Go's decoder.

use api::field::quote;
use api::time::parse_duration;
use value::yaml::Document;
use value::{Map, Path, Str, Value};

use crate::config::{AuthorizationConfigError, ConfigProblem};

/// A decoded configuration: fields have the right types, but are not validated.
#[derive(Debug, Default)]
pub(super) struct RawConfiguration {
    /// `v1alpha1`, the version of KEP-3221, in which more fields are optional.
    pub(super) alpha: bool,
    pub(super) authorizers: Vec<RawAuthorizer>,
}

#[derive(Debug, Default)]
pub(super) struct RawAuthorizer {
    pub(super) kind: Str,
    pub(super) name: Str,
    pub(super) webhook: Option<RawWebhook>,
}

#[derive(Debug, Default)]
pub(super) struct RawWebhook {
    pub(super) authorized_ttl: i64,
    pub(super) cache_authorized: bool,
    pub(super) unauthorized_ttl: i64,
    pub(super) cache_unauthorized: bool,
    pub(super) timeout: i64,
    pub(super) review_version: Str,
    pub(super) condition_version: Str,
    pub(super) failure_policy: Str,
    pub(super) connection_type: Str,
    pub(super) kubeconfig: Option<Str>,
    pub(super) conditions: Vec<Str>,
    /// TTLs that are zero in the file, which means the default, each with the field that disables caching.
    pub(super) zero_ttls: Vec<(&'static str, &'static str)>,
}

const GROUP: &str = "apiserver.config.k8s.io";
const KIND: &str = "AuthorizationConfiguration";
const VERSIONS: [&str; 3] = ["v1alpha1", "v1beta1", "v1"];
/// Other kinds of the same group with their fields, and the versions that have them.
const OTHER_KINDS: [(&str, &[&str], &[&str]); 5] = [
    ("AdmissionConfiguration", &["plugins"], &["v1", "v1alpha1"]),
    ("AuthenticationConfiguration", &["anonymous", "jwt"], &["v1", "v1beta1", "v1alpha1"]),
    ("EgressSelectorConfiguration", &["egressSelections"], &["v1beta1", "v1alpha1"]),
    ("EncryptionConfiguration", &["resources"], &["v1"]),
    ("TracingConfiguration", &["endpoint", "samplingRatePerMillion"], &["v1", "v1beta1", "v1alpha1"]),
];
const SECOND: i64 = 1_000_000_000;
/// The default TTLs of cached decisions.
const AUTHORIZED_TTL: i64 = 300 * SECOND;
const UNAUTHORIZED_TTL: i64 = 30 * SECOND;
/// The location of Go's scheme for these kinds, which is part of its error messages.
const SCHEME: &str = "k8s.io/apiserver/pkg/apis/apiserver/load/load.go:32";

/// Decodes the fields. An empty file is a configuration without authorizers.
pub(super) fn configuration(
    bytes: &[u8],
    document: Option<&Document>,
) -> Result<RawConfiguration, AuthorizationConfigError> {
    let Some(document) = document else { return Ok(RawConfiguration::default()) };
    let gvk = api::type_meta::require(&document.value, bytes)
        .map_err(|error| load_error(document, &error.message, error.field))?;
    let empty = Map::new();
    let root = document.value.as_map().unwrap_or(&empty);
    let (api_version, kind) = (gvk.api_version(), gvk.kind.as_str());
    let version = api_version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
    let Some(version) = version.filter(|version| VERSIONS.contains(version) && kind == KIND) else {
        return Err(wrong_kind_error(document, root, &api_version, version, kind));
    };

    let mut decoder = ConfigDecoder {
        package: version,
        alpha: version == "v1alpha1",
        mismatches: Vec::new(),
        unknown: Vec::new(),
    };
    let configuration = decoder.configuration(root);
    // Go decodes JSON in source order and YAML in the order of the sorted fields.
    let first = if bytes.trim_ascii_start().starts_with(b"{") {
        decoder.mismatches.iter().min_by_key(|(_, path)| document.spans.nearest(path).key)
    } else {
        decoder.mismatches.first()
    };
    if let Some((message, path)) = first {
        return Err(load_error(document, message, path));
    }
    check_strict(document, &decoder.unknown)?;
    Ok(configuration)
}

/// An error at the value of a field.
fn load_error(document: &Document, message: &str, path: &str) -> AuthorizationConfigError {
    let position = Some(document.spans.nearest(path).value);
    let problem = ConfigProblem { message: message.to_owned(), position, hint: None };
    AuthorizationConfigError::load(vec![problem], message)
}

/// The error of a file with another kind. `version` is set if the kind is of the right group.
fn wrong_kind_error(
    document: &Document,
    root: &Map,
    api_version: &str,
    version: Option<&str>,
    kind: &str,
) -> AuthorizationConfigError {
    let other = OTHER_KINDS.iter().find(|(other, _, versions)| {
        *other == kind && version.is_some_and(|version| versions.contains(&version))
    });
    let Some((_, fields, _)) = other else {
        let message = format!(
            "no kind {} is registered for version {} in scheme {}",
            quote(kind),
            quote(api_version),
            quote(SCHEME)
        );
        return load_error(document, &message, "apiVersion");
    };
    let unknown: Vec<String> = root
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| !["apiVersion", "kind"].contains(name) && !fields.contains(name))
        .map(|name| format!("unknown field {}", quote(name)))
        .collect();
    // Go decodes the fields before it checks the kind.
    let message = if unknown.is_empty() {
        format!("expected {KIND}, got *apiserver.{kind}")
    } else {
        format!("strict decoding error: {}", unknown.join(", "))
    };
    load_error(document, &message, "kind")
}

/// Fails if the file has duplicate or unknown fields.
fn check_strict(document: &Document, unknown: &[String]) -> Result<(), AuthorizationConfigError> {
    let problem = |what: &str, path: &str| ConfigProblem {
        message: format!("{what} field {}", quote(path)),
        position: Some(document.spans.nearest(path).key),
        hint: None,
    };
    let duplicates = document.duplicates.iter().map(|path| problem("duplicate", path));
    let problems: Vec<ConfigProblem> =
        duplicates.chain(unknown.iter().map(|path| problem("unknown", path))).collect();
    // Duplicate keys in YAML are reported in the words of Go's YAML parser.
    let words: Vec<String> = match &document.strict {
        Some(strict) => {
            let unknown = problems.iter().skip(document.duplicates.len());
            std::iter::once(strict.clone()).chain(unknown.map(|problem| problem.message.clone())).collect()
        }
        None => problems.iter().map(|problem| problem.message.clone()).collect(),
    };
    if words.is_empty() {
        return Ok(());
    }
    Err(AuthorizationConfigError::load(problems, &format!("strict decoding error: {}", words.join(", "))))
}

/// Decodes fields in order and collects type errors and unknown fields.
struct ConfigDecoder<'a> {
    package: &'a str,
    alpha: bool,
    mismatches: Vec<(String, String)>,
    unknown: Vec<String>,
}

/// A field: the Go struct that contains it, its path as Go prints it (without indexes), and its full path.
struct FieldLocation<'a> {
    owner: &'a str,
    dotted: String,
    path: Path,
}

impl<'a> FieldLocation<'a> {
    fn new(owner: &'a str, dotted: &str, path: &Path, name: &str) -> Self {
        let dotted = if dotted.is_empty() { name.to_owned() } else { format!("{dotted}.{name}") };
        FieldLocation { owner, dotted, path: path.field(name) }
    }
}

impl ConfigDecoder<'_> {
    fn configuration(&mut self, root: &Map) -> RawConfiguration {
        let mut out = RawConfiguration { alpha: self.alpha, authorizers: Vec::new() };
        for (name, value) in root.iter() {
            let field = FieldLocation::new(KIND, "", &Path::root(), name);
            match name.as_str() {
                "apiVersion" | "kind" => {}
                "authorizers" => {
                    let item = format!("{}.AuthorizerConfiguration", self.package);
                    out.authorizers = self
                        .list(&field, value, &item)
                        .iter()
                        .enumerate()
                        .map(|(i, item)| self.authorizer(&field.dotted, &field.path.index(i), item))
                        .collect();
                }
                _ => self.unknown.push(field.path.to_string()),
            }
        }
        out
    }

    fn authorizer(&mut self, dotted: &str, path: &Path, value: &Value) -> RawAuthorizer {
        const OWNER: &str = "AuthorizerConfiguration";
        let mut out = RawAuthorizer::default();
        let field = FieldLocation { owner: KIND, dotted: dotted.to_owned(), path: path.clone() };
        for (name, value) in self.object(&field, value, OWNER).iter() {
            let field = FieldLocation::new(OWNER, dotted, path, name);
            match name.as_str() {
                "type" => out.kind = self.text(&field, value),
                "name" => out.name = self.text(&field, value),
                "webhook" if value.is_null() => {}
                "webhook" => {
                    let (webhook, name) = self.webhook(&field, value);
                    out.webhook = Some(webhook);
                    // In KEP-3221 the name is a field of `webhook`.
                    if let Some(name) = name.filter(|_| out.name.is_empty()) {
                        out.name = name;
                    }
                }
                _ => self.unknown.push(field.path.to_string()),
            }
        }
        out
    }

    fn webhook(&mut self, field: &FieldLocation<'_>, value: &Value) -> (RawWebhook, Option<Str>) {
        const OWNER: &str = "WebhookConfiguration";
        let mut inner_name = None;
        let mut out =
            RawWebhook { cache_authorized: true, cache_unauthorized: true, ..RawWebhook::default() };
        for (name, value) in self.object(field, value, OWNER).iter() {
            let field = FieldLocation::new(OWNER, &field.dotted, &field.path, name);
            match name.as_str() {
                "authorizedTTL" => out.authorized_ttl = self.duration(&field, value),
                "cacheAuthorizedRequests" => out.cache_authorized = self.flag(&field, value),
                "unauthorizedTTL" => out.unauthorized_ttl = self.duration(&field, value),
                "cacheUnauthorizedRequests" => out.cache_unauthorized = self.flag(&field, value),
                "timeout" => out.timeout = self.duration(&field, value),
                "subjectAccessReviewVersion" => out.review_version = self.text(&field, value),
                "matchConditionSubjectAccessReviewVersion" => {
                    out.condition_version = self.text(&field, value);
                }
                "failurePolicy" => out.failure_policy = self.text(&field, value),
                "connectionInfo" => self.connection(&field, value, &mut out),
                "matchConditions" => {
                    let item = format!("{}.WebhookMatchCondition", self.package);
                    let items = self.list(&field, value, &item);
                    out.conditions =
                        items.iter().enumerate().map(|(i, item)| self.condition(&field, i, item)).collect();
                }
                "name" if self.alpha => inner_name = Some(self.text(&field, value)),
                _ => self.unknown.push(field.path.to_string()),
            }
        }
        for (ttl, field, default, cache, cached) in [
            (
                &mut out.authorized_ttl,
                "authorizedTTL",
                AUTHORIZED_TTL,
                "cacheAuthorizedRequests",
                out.cache_authorized,
            ),
            (
                &mut out.unauthorized_ttl,
                "unauthorizedTTL",
                UNAUTHORIZED_TTL,
                "cacheUnauthorizedRequests",
                out.cache_unauthorized,
            ),
        ] {
            if *ttl != 0 {
                continue;
            }
            *ttl = default;
            if cached && value.get(field).is_some() {
                out.zero_ttls.push((field, cache));
            }
        }
        (out, inner_name)
    }

    fn connection(&mut self, field: &FieldLocation<'_>, value: &Value, out: &mut RawWebhook) {
        const OWNER: &str = "WebhookConnectionInfo";
        for (name, value) in self.object(field, value, OWNER).iter() {
            let field = FieldLocation::new(OWNER, &field.dotted, &field.path, name);
            match name.as_str() {
                "type" => out.connection_type = self.text(&field, value),
                "kubeConfigFile" if value.is_null() => {}
                "kubeConfigFile" => out.kubeconfig = Some(self.text(&field, value)),
                _ => self.unknown.push(field.path.to_string()),
            }
        }
    }

    fn condition(&mut self, list: &FieldLocation<'_>, index: usize, value: &Value) -> Str {
        const OWNER: &str = "WebhookMatchCondition";
        let mut expression = Str::default();
        let field =
            FieldLocation { owner: list.owner, dotted: list.dotted.clone(), path: list.path.index(index) };
        for (name, value) in self.object(&field, value, OWNER).iter() {
            let field = FieldLocation::new(OWNER, &field.dotted, &field.path, name);
            match name.as_str() {
                "expression" => expression = self.text(&field, value),
                _ => self.unknown.push(field.path.to_string()),
            }
        }
        expression
    }

    fn object<'v>(&mut self, field: &FieldLocation<'_>, value: &'v Value, owner: &str) -> &'v Map {
        static EMPTY: Map = Map::new();
        match value {
            Value::Map(map) => map,
            Value::Null => &EMPTY,
            other => {
                let wanted = format!("{}.{owner}", self.package);
                self.type_mismatch(field, other, &wanted);
                &EMPTY
            }
        }
    }

    fn list<'v>(&mut self, field: &FieldLocation<'_>, value: &'v Value, item: &str) -> &'v [Value] {
        match value {
            Value::List(list) => list,
            Value::Null => &[],
            other => {
                self.type_mismatch(field, other, &format!("[]{item}"));
                &[]
            }
        }
    }

    fn text(&mut self, field: &FieldLocation<'_>, value: &Value) -> Str {
        match value {
            Value::String(text) => text.clone(),
            Value::Null => Str::default(),
            other => {
                self.type_mismatch(field, other, "string");
                Str::default()
            }
        }
    }

    fn flag(&mut self, field: &FieldLocation<'_>, value: &Value) -> bool {
        match value {
            Value::Bool(flag) => *flag,
            Value::Null => true,
            other => {
                self.type_mismatch(field, other, "bool");
                true
            }
        }
    }

    /// A duration in nanoseconds. Parse errors are reported verbatim, as Go does.
    fn duration(&mut self, field: &FieldLocation<'_>, value: &Value) -> i64 {
        let read = match value {
            Value::String(text) => parse_duration(text),
            Value::Null => parse_duration(""),
            other => {
                self.type_mismatch(field, other, "string");
                return 0;
            }
        };
        read.unwrap_or_else(|message| {
            self.mismatches.push((message, field.path.to_string()));
            0
        })
    }

    fn type_mismatch(&mut self, field: &FieldLocation<'_>, value: &Value, wanted: &str) {
        let message = format!(
            "json: cannot unmarshal {} into Go struct field {}.{} of type {wanted}",
            value.json_type(),
            field.owner,
            field.dotted
        );
        self.mismatches.push((message, field.path.to_string()));
    }
}
