//! Every page under `spec/` is a test.
//!
//! A page is prose with two kinds of fenced blocks: `yaml` holds objects that are stored from there on (an object with the
//! same name replaces the earlier one), `ask` holds questions and their answers, one per line:
//!
//! ```text
//! alice[devs,testers] get pods/log web -n default -> allowed: RBAC: allowed by …
//! alice get deployments.apps -> forbidden: deployments.apps is forbidden: User "alice" cannot …
//! alice get /healthz -> …
//! ```

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is a test")]

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use authn::User;
use authz::{Attributes, Authorizer, Chain, Decision, Step, forbidden, rbac};

macro_rules! pages {
    ($($page:ident),* $(,)?) => {
        const PAGES: &[&str] = &[$(stringify!($page)),*];
        $(#[test] fn $page() { check(stringify!($page)); })*
    };
}

pages!(rbac_rules, rbac_bindings, rbac_missing_roles, rbac_bootstrap);

#[test]
fn every_page_is_listed() {
    let mut found: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
        .collect();
    found.sort();
    let mut listed = PAGES.to_vec();
    listed.sort_unstable();
    assert_eq!(found, listed);
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("spec")
}

fn check(page: &str) {
    let path = folder().join(format!("{page}.md"));
    let text = std::fs::read_to_string(&path).unwrap();
    let index = Arc::new(rbac::Index::default());
    if text.contains("bootstrap objects are stored") {
        for object in rbac::bootstrap::objects() {
            store(&index, &object);
        }
    }
    let step = Step { name: "rbac".into(), authorizer: Authorizer::Rbac(index.clone()) };
    let chain = Chain::new(vec![step]).unwrap();
    let mut wrong = String::new();
    let mut asked = 0;
    let mut block: Option<(&str, String)> = None;
    for line in text.lines() {
        match (&mut block, line.strip_prefix("```")) {
            (None, Some(kind)) => block = Some((kind, String::new())),
            (Some((kind, body)), Some(_)) => {
                match *kind {
                    "yaml" => {
                        for document in value::yaml::documents(body.as_bytes()).unwrap() {
                            store(&index, &document.value);
                        }
                    }
                    "ask" => {
                        for line in body.lines().filter(|line| !line.trim().is_empty()) {
                            asked += 1;
                            let (question, expected) = line.split_once(" -> ").unwrap();
                            let answer = ask(&chain, question);
                            if answer != expected.trim() {
                                writeln!(wrong, "{question}\n  expected {expected}\n  got      {answer}")
                                    .unwrap();
                            }
                        }
                    }
                    other => panic!("unknown block {other:?}"),
                }
                block = None;
            }
            (Some((_, body)), None) => {
                body.push_str(line);
                body.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(asked > 0, "the page asks nothing");
    assert!(wrong.is_empty(), "{}:\n{wrong}", path.display());
}

fn store(index: &rbac::Index, object: &value::Value) {
    let kind = object.str_at(&["kind"]).and_then(rbac::Kind::parse).expect("a kind of RBAC");
    index.apply(kind, None, Some(object));
}

fn ask(chain: &Chain, question: &str) -> String {
    let mut words = question.split_whitespace();
    let who = words.next().unwrap();
    let user = match who.split_once('[') {
        Some((name, groups)) => User::named(name).in_groups(groups.trim_end_matches(']').split(',')),
        None => User::named(who),
    };
    let verb = words.next().unwrap();
    let target = words.next().unwrap();
    let attributes = if target.starts_with('/') {
        Attributes::path(verb, target)
    } else {
        let (resource, subresource) = target.split_once('/').unwrap_or((target, ""));
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let mut attributes = Attributes::resource(verb, group, resource).subresource(subresource);
        while let Some(word) = words.next() {
            attributes = match word {
                "-n" => attributes.in_namespace(words.next().unwrap()),
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
