use serde_json::json;

use super::crates::{Packages, arrows, http_speakers, one_cryptography, unused_arrows, without_io};
use super::documents::{CrateTable, headings};
use super::sources::{
    SourceFile, code_only, constants_declared_once, exceptions_are_used, keys_at_home, no_io, not_too_long,
    nothing_left_to_do, one_writer, server_is_small, storage_keys_at_home, storage_keys_taken_apart_at_home,
    the_writer_exists,
};

const ARCHITECTURE: &str = "\
# Architecture
## Crates
| crate | responsibility | may depend on |
|---|---|---|
| `value` | the tree | – |
| `api` | the model | `value` |

### `value`
### `api`
";

fn packages(uses: &[(&str, &str, Option<&str>)]) -> Packages {
    let names = ["value", "api", "mio", "hyper"];
    let present = |name: &str| name == "value" || name == "api" || uses.iter().any(|(_, to, _)| *to == name);
    let nodes = names.map(|name| {
        let deps: Vec<_> = uses
            .iter()
            .filter(|(from, ..)| *from == name)
            .map(|(_, to, kind)| json!({"pkg": to, "dep_kinds": [{"kind": kind}]}))
            .collect();
        json!({"id": name, "deps": deps})
    });
    let listed: Vec<_> =
        names.iter().filter(|name| present(name)).map(|name| json!({"id": name, "name": name})).collect();
    Packages::parse(&json!({
        "packages": listed, "workspace_members": ["value", "api"], "resolve": {"nodes": nodes},
    }))
    .unwrap()
}

#[test]
fn dependency_listed_in_the_table_is_allowed_and_its_reverse_is_not() {
    let map = CrateTable::parse(ARCHITECTURE);
    assert!(arrows(&map, &packages(&[("api", "value", None)])).is_empty());
    let complaints = arrows(&map, &packages(&[("value", "api", Some("dev"))]));
    assert_eq!(complaints, ["`value` depends on `api`, which ARCHITECTURE.md does not allow"]);
}

#[test]
fn dependency_that_the_table_allows_must_exist() {
    let map = CrateTable::parse(ARCHITECTURE);
    for kind in [None, Some("dev")] {
        assert!(unused_arrows(&map, &packages(&[("api", "value", kind)])).is_empty(), "{kind:?}");
    }
    assert_eq!(
        unused_arrows(&map, &packages(&[])),
        ["ARCHITECTURE.md allows `api` to depend on `value`, which it does not use"]
    );
}

#[test]
fn every_crate_needs_a_row_and_a_heading_in_architecture_md() {
    let both = packages(&[]);
    assert!(headings(ARCHITECTURE, &both).is_empty());
    let without = ARCHITECTURE.replace("| `api` | the model | `value` |\n", "").replace("### `api`\n", "");
    assert_eq!(
        arrows(&CrateTable::parse(&without), &both),
        ["ARCHITECTURE.md has no row for the crate `api`"]
    );
    assert_eq!(headings(&without, &both), ["ARCHITECTURE.md has no heading for the crate `api`"]);
    let gone = ARCHITECTURE.replace("| `api`", "| `dra` | x | – |\n| `api`");
    assert_eq!(
        arrows(&CrateTable::parse(&gone), &both),
        ["ARCHITECTURE.md has a row for `dra`, which is no crate"]
    );
}

#[test]
fn io_dependency_of_a_decision_crate_is_rejected_at_any_depth_except_in_tests() {
    let deep = packages(&[("api", "value", None), ("value", "mio", None)]);
    assert_eq!(without_io(&deep, &["api"]), ["`api` decides, but is built from `mio`"]);
    let tests = packages(&[("api", "mio", Some("dev"))]);
    assert!(without_io(&tests, &["api"]).is_empty());
}

#[test]
fn only_listed_crates_depend_on_an_http_implementation_except_in_tests() {
    let http = packages(&[("api", "hyper", None), ("value", "hyper", Some("dev"))]);
    assert!(http_speakers(&http, &["api"]).is_empty());
    assert_eq!(http_speakers(&http, &[]), ["`api` depends on `hyper`, but is not listed as speaking HTTP"]);
    assert_eq!(
        http_speakers(&http, &["api", "value"]),
        ["`value` is listed as speaking HTTP, but depends on no HTTP crate"]
    );
}

#[test]
fn second_cryptography_library_is_rejected() {
    assert!(one_cryptography("warning: nothing to print.").is_none());
    assert!(one_cryptography("ring v0.17.14\n└── rustls v0.23.46").is_some());
}

#[test]
fn code_only_removes_comments_and_string_literals() {
    let text = "let a = \"std::fs\"; // std::fs\n/* std::fs */ let b = r#\"std::\"fs\"#; let c = '\"'; fn d<'a>() {}\nlet e = 1;";
    let code = code_only(text);
    assert!(!code.contains("fs"), "{code}");
    assert!(code.contains("fn d<'a>() {}") && code.contains("let e = 1;"));
    assert_eq!(code.lines().count(), text.lines().count());
}

#[test]
fn a_decision_crate_may_use_addresses_and_given_times_but_no_socket_and_no_clock() {
    let found = |path: &str, text: &str| {
        !no_io(&SourceFile::new(path, text), &["authn"], &["webhook-auth/src/verify"]).is_empty()
    };
    let fine = "use std::net::IpAddr; use std::time::SystemTime; fn f(now: SystemTime) {}\n#[cfg(test)]\nmod tests { use std::fs; fn g() { SystemTime::now(); } }";
    assert!(!found("crates/authn/src/a.rs", fine));
    for bad in [
        "use std::fs;",
        "let s = TcpStream::connect(a);",
        "let t = Instant::now();",
        "let t = start.elapsed();",
        "tokio::spawn(x);",
        "std::thread::spawn(x);",
        "let random = SystemRandom::new();",
    ] {
        for decides in [
            "crates/authn/src/a.rs",
            "crates/webhook-auth/src/verify.rs",
            "crates/webhook-auth/src/verify/a.rs",
        ] {
            assert!(found(decides, bad), "{decides} {bad}");
        }
        for other in
            ["crates/authn/src/a/tests.rs", "crates/server/src/a.rs", "crates/webhook-auth/src/keys.rs"]
        {
            assert!(!found(other, bad), "{other} {bad}");
        }
    }
}

#[test]
fn an_exception_of_a_decision_crate_permits_one_word_in_one_file_and_must_be_used() {
    let complaints =
        |path: &str, text: &str| no_io(&SourceFile::new(path, text), &["authn", "cel"], &[]).len();
    let (random, thread) = ("let random = SystemRandom::new();", "std::thread::scope(f);");
    assert_eq!(complaints("crates/authn/src/tokens/keys.rs", random), 0);
    assert_eq!(complaints("crates/authn/src/tokens/keys.rs", thread), 1);
    assert_eq!(complaints("crates/authn/src/tokens/cache.rs", random), 1);
    assert_eq!(complaints("crates/cel/src/deep_stack.rs", thread), 0);
    let sources = |thread: &str| {
        [
            SourceFile::new("crates/authn/src/tokens/keys.rs", "use aws_lc_rs::rand::SystemRandom;"),
            SourceFile::new("crates/authn/src/impersonation/last_modes.rs", "hasher: RandomState"),
            SourceFile::new("crates/cel/src/deep_stack.rs", thread),
            SourceFile::new("crates/value/src/steps.rs", "!std::thread::panicking()"),
        ]
    };
    assert!(exceptions_are_used(&sources(thread)).is_empty());
    assert_eq!(
        exceptions_are_used(&sources("// std::thread")),
        ["crates/cel/src/deep_stack.rs no longer uses `std::thread`: remove the exception"]
    );
}

#[test]
fn a_constant_of_the_object_model_is_spelled_out_nowhere_else() {
    let homes = |finalizer: &str| {
        let constant = |name: &str, value: &str| format!("/// Doc.\npub const {name}: &str = \"{value}\";\n");
        [
            ("admin_access", constant("LABEL", "resource.kubernetes.io/admin-access")),
            ("finalizers", finalizer.to_owned()),
            ("groups", constant("RBAC", "rbac.authorization.k8s.io")),
            ("identities", constant("MASTERS", "system:masters")),
            ("labels", constant("SERVICE_NAME", "kubernetes.io/service-name")),
            ("namespaces", constant("DEFAULT", "default") + &constant("SYSTEM", "kube-system")),
            ("signers", constant("CLIENT", "kubernetes.io/kube-apiserver-client")),
        ]
        .map(|(name, text)| SourceFile::new(&format!("crates/api/src/{name}.rs"), &text))
    };
    let finalizer = "pub const ORPHAN: &str = \"orphan\";";
    let complaints = |path: &str, text: &str| {
        let sources: Vec<SourceFile> =
            homes(finalizer).into_iter().chain([SourceFile::new(path, text)]).collect();
        constants_declared_once(&sources)
    };
    let masters = "let group = \"system:masters\";";
    assert_eq!(
        complaints("crates/authz/src/a.rs", masters),
        ["crates/authz/src/a.rs:1: \"system:masters\": use the constant of crates/api/src/identities.rs"]
    );
    assert_eq!(complaints("crates/server/src/a.rs", "f(\"orphan\", \"kube-system\")").len(), 2);
    for fine in
        ["// As \"system:masters\".", "f(\"system:masters-of\", \"orphans\")", "let name = \"default\";"]
    {
        assert!(complaints("crates/authz/src/a.rs", fine).is_empty(), "{fine}");
    }
    let table = "crates/authz/src/rbac/bootstrap/people.rs";
    let group = "on(ALL, \"rbac.authorization.k8s.io\", \"roles\")";
    assert_eq!(complaints(table, group), Vec::<String>::new(), "a table spells out groups");
    assert_eq!(complaints(table, masters).len(), 1, "a table spells out no other constant");
    assert_eq!(complaints("crates/authz/src/a.rs", group).len(), 1);
    for independent in
        ["crates/authz/src/a/tests.rs", "crates/webhook-auth/src/a.rs", "crates/conformance/src/a.rs"]
    {
        assert!(complaints(independent, masters).is_empty(), "{independent}");
    }
    assert_eq!(
        constants_declared_once(&homes("pub use elsewhere::ORPHAN;")),
        ["crates/api/src/finalizers.rs declares no constant: have they moved?"]
    );
}

#[test]
fn commit_outside_the_write_path_is_rejected() {
    let commits = "async fn f() { self.state.store.commit(write).await; }";
    assert!(one_writer(&SourceFile::new("crates/server/src/write.rs", commits)).is_empty());
    assert!(one_writer(&SourceFile::new("crates/storage/src/store.rs", commits)).is_empty());
    assert_eq!(one_writer(&SourceFile::new("crates/server/src/bootstrap.rs", commits)).len(), 1);
    assert_eq!(one_writer(&SourceFile::new("crates/controllers/src/lib.rs", commits)).len(), 1);
    assert!(the_writer_exists(&[SourceFile::new("crates/server/src/write.rs", commits)]).is_none());
    assert!(the_writer_exists(&[SourceFile::new("crates/server/src/write.rs", "")]).is_some());
}

#[test]
fn signing_key_outside_its_module_is_rejected() {
    let holds = "struct S { key: EcdsaKeyPair }";
    assert!(keys_at_home(&SourceFile::new("crates/authn/src/tokens/keys.rs", holds)).is_empty());
    assert_eq!(keys_at_home(&SourceFile::new("crates/server/src/handlers/get.rs", holds)).len(), 1);
}

#[test]
fn storage_key_literal_outside_the_keys_module_is_rejected() {
    let spells = "fn f() -> &'static str { \"/registry/pods/\" }";
    let complaints = |path: &str, text: &str| storage_keys_at_home(&SourceFile::new(path, text)).len();
    assert_eq!(complaints("crates/catalog/src/keys.rs", spells), 0);
    assert_eq!(complaints("crates/catalog/src/keys/migration.rs", spells), 0);
    assert_eq!(complaints("crates/server/src/handlers/get.rs", spells), 1);
    assert_eq!(complaints("crates/storage/src/store.rs", spells), 1);
    assert_eq!(complaints("crates/storage/src/store/tests.rs", spells), 0);
    let test = format!("#[cfg(test)]\nmod tests {{\n    {spells}\n}}\n");
    assert_eq!(complaints("crates/server/src/handlers/get.rs", &test), 0);
    assert_eq!(complaints("crates/server/src/handlers/get.rs", "// As \"/registry/pods/\".\n"), 0);
}

#[test]
fn storage_key_taken_apart_outside_the_keys_module_is_rejected() {
    let cuts = "fn f() { entry.key.rsplit('/').next(); }";
    let complaints = |path: &str| storage_keys_taken_apart_at_home(&SourceFile::new(path, cuts)).len();
    assert_eq!(complaints("crates/catalog/src/keys.rs"), 0);
    assert_eq!(complaints("crates/server/src/handlers/get.rs"), 1);
    assert_eq!(complaints("crates/catalog/src/unreadable.rs"), 1);
    assert_eq!(complaints("crates/server/src/handlers/tests.rs"), 0);
    assert_eq!(complaints("crates/value/src/time.rs"), 0, "other crates have no storage keys");
}

#[test]
fn todo_comments_are_rejected() {
    let left = format!("// {}: later", concat!("TO", "DO"));
    assert_eq!(nothing_left_to_do(&SourceFile::new("crates/a/src/b.rs", &left)).len(), 1);
    assert!(nothing_left_to_do(&SourceFile::new("crates/a/src/b.rs", "// all done")).is_empty());
}

#[test]
fn server_over_30000_lines_is_rejected_without_its_tests() {
    let file = |path: &str, count: usize| SourceFile::new(path, &"fn a() {}\n".repeat(count));
    let mut sources = vec![file("crates/server/src/a.rs", 20_000), file("crates/server/src/b.rs", 10_000)];
    sources.push(file("crates/server/src/b/tests.rs", 400));
    sources.push(file("crates/storage/src/a.rs", 400));
    assert_eq!(server_is_small(&sources), None);
    sources.push(file("crates/server/src/c.rs", 1));
    assert_eq!(
        server_is_small(&sources).as_deref(),
        Some("crates/server/src: 30001 lines, more than 30000: move a part into a crate of its own")
    );
}

#[test]
fn file_over_500_lines_is_rejected_unless_it_is_a_test() {
    let lines = |count: usize| "fn a() {}\n".repeat(count);
    assert_eq!(not_too_long(&SourceFile::new("crates/api/src/a.rs", &lines(500))), None);
    assert_eq!(
        not_too_long(&SourceFile::new("crates/api/src/a.rs", &lines(501))).as_deref(),
        Some("crates/api/src/a.rs: 501 lines, more than 500: split it")
    );
    assert_eq!(not_too_long(&SourceFile::new("crates/api/src/a/tests.rs", &lines(501))), None);
}
