//! Runs every page under `spec/` as a test. A page that says "bootstrap objects are stored" starts with the default RBAC
//! objects. The code blocks of a page are:
//!
//! - `chain`: the authorizers, one per line; `rbac` alone if absent.
//! - `abac`: a policy file.
//! - `yaml`: objects to store; an object with the name of an earlier one replaces it.
//! - `config`: an authorization configuration file named `authz.yaml`, and `result`: the chain's names or the errors.
//! - `ask`: questions and expected answers, one per line:
//!
//! ```text
//! alice[devs,testers] get pods/log web -n default -> allowed: RBAC: allowed by …
//! alice get deployments.apps -> forbidden: deployments.apps is forbidden: User "alice" cannot …
//! alice get /healthz -> …
//! ```

#![expect(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

use std::sync::Arc;

use authn::User;
use authz::abac::AbacPolicies;
use authz::config::Environment;
use authz::node::NodeAuthorizer;
use authz::{
    AuthorizationAttributes, Authorizer, AuthorizerChain, ChainStep, Decision, Requirement, ReviewCompiler,
    SelectorOperator, forbidden, node, rbac,
};
use pages::{Page, pages};

pages!(check, "": abac, chain, kep_3221, node, rbac_bindings, rbac_bootstrap, rbac_missing_roles, rbac_rules);

/// The state that the blocks of a page have set up so far.
struct Cluster {
    index: Arc<rbac::RbacIndex>,
    nodes: Arc<NodeAuthorizer>,
    policies: Arc<AbacPolicies>,
    chain: Vec<String>,
}

impl Cluster {
    fn store(&self, object: &value::Value) {
        let kind = object.str_at(&["kind"]).unwrap_or_default();
        match (rbac::RbacKind::parse(kind), node::GraphKind::parse(kind)) {
            (Some(kind), _) => self.index.apply(kind, None, Some(object)),
            (_, Some(kind)) => self.nodes.graph().apply(kind, None, Some(object)),
            _ => panic!("no informer for the kind {kind:?}"),
        }
    }

    fn chain(&self) -> AuthorizerChain {
        let step = |name: &String| ChainStep {
            name: name.as_str().into(),
            authorizer: match name.as_str() {
                "rbac" => Authorizer::Rbac(self.index.clone()),
                "node" => Authorizer::Node(self.nodes.clone()),
                "abac" => Authorizer::Abac(self.policies.clone()),
                "alwaysallow" => Authorizer::AlwaysAllow,
                "alwaysdeny" => Authorizer::AlwaysDeny,
                other => panic!("unknown authorizer {other:?}"),
            },
        };
        AuthorizerChain::new(self.chain.iter().map(step).collect()).unwrap()
    }
}

fn check(page: &Page) {
    let mut cluster = Cluster {
        index: Arc::default(),
        nodes: Arc::new(NodeAuthorizer::new()),
        policies: Arc::default(),
        chain: vec!["rbac".to_owned()],
    };
    if page.text.contains("bootstrap objects are stored") {
        for object in &rbac::bootstrap::objects(api::features::Features::default()) {
            cluster.store(object);
        }
    }
    let mut config = String::new();
    page.check(|info, body| {
        match info {
            "chain" => cluster.chain = body.lines().map(str::to_owned).collect(),
            "abac" => cluster.policies = Arc::new(AbacPolicies::parse("policies", body).unwrap().0),
            "config" => body.clone_into(&mut config),
            "result" => return Some(format!("{}\n", load(&config).trim())),
            "yaml" => {
                for document in value::yaml::documents(body.as_bytes()).unwrap() {
                    cluster.store(&document.value);
                }
            }
            "ask" => {
                let chain = cluster.chain();
                return Some(body.lines().map(|line| answered(&chain, line)).collect());
            }
            other => panic!("unknown block {other:?}"),
        }
        None
    });
}

/// The line of an `ask` block with the actual answer.
fn answered(chain: &AuthorizerChain, line: &str) -> String {
    match line.split_once(" -> ") {
        Some((question, _)) => format!("{question} -> {}\n", ask(chain, question)),
        None => {
            assert!(line.trim().is_empty(), "not a question: {line}");
            format!("{line}\n")
        }
    }
}

/// Loads a configuration file as if all kubeconfigs existed. Returns the names of the chain, or the errors.
fn load(text: &str) -> String {
    let environment =
        Environment { compiler: &ReviewCompiler::default(), kubeconfig: &|_| Ok(()), required: &[] };
    match authz::config::load(text.as_bytes(), &environment) {
        Ok(checked) => {
            let names: Vec<&str> =
                checked.configuration.authorizers.iter().map(|a| a.name.as_str()).collect();
            format!("loads: {}", names.join(", "))
        }
        Err(refused) => refused.located("authz.yaml").join("\n"),
    }
}

fn ask(chain: &AuthorizerChain, question: &str) -> String {
    let mut words = question.split_whitespace();
    let who = words.next().unwrap();
    let user = match who.split_once('[') {
        Some((name, groups)) => User::named(name).in_groups(groups.trim_end_matches(']').split(',')),
        None => User::named(who),
    };
    let verb = words.next().unwrap();
    let target = words.next().unwrap();
    let attributes = if target.starts_with('/') {
        AuthorizationAttributes::path(verb, target)
    } else {
        let (resource, subresource) = target.split_once('/').unwrap_or((target, ""));
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let mut attributes =
            AuthorizationAttributes::resource(verb, group, resource).subresource(subresource);
        while let Some(word) = words.next() {
            attributes = match word {
                "-n" => attributes.in_namespace(words.next().unwrap()),
                "--field-selector" => {
                    let (key, value) = words.next().unwrap().split_once('=').unwrap();
                    let values = [value.into()].into();
                    let requirement = Requirement { key: key.into(), operator: SelectorOperator::In, values };
                    attributes.fields.requirements.push(requirement);
                    attributes
                }
                name => attributes.named(name),
            };
        }
        attributes
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let answer = runtime.block_on(chain.decide(&user, &attributes));
    match answer.decision {
        Decision::Allow if answer.reason.is_empty() => "allowed".to_owned(),
        Decision::Allow => format!("allowed: {}", answer.reason),
        _ => format!("forbidden: {}", forbidden(&user.name, &attributes, &answer.reason.to_string())),
    }
}
