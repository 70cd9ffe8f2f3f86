use crate::kubeconfig::{KubeconfigCredential, KubeconfigError, KubeconfigUser, KubeconfigUsers};

fn users(names: &[&str]) -> KubeconfigUsers {
    let users: Vec<String> =
        names.iter().map(|name| format!("- name: '{name}'\n  user: {{token: 'of {name}'}}\n")).collect();
    KubeconfigUsers::parse(format!("apiVersion: v1\nkind: Config\nusers:\n{}", users.concat()).as_bytes())
        .unwrap()
}

fn token(user: Option<&KubeconfigUser>) -> Option<&str> {
    match &user?.credential {
        KubeconfigCredential::Token(token) => Some(token),
        _ => None,
    }
}

#[test]
fn exact_host_takes_precedence_over_wildcards() {
    let users = users(&["a.b.svc:443", "*.b.svc:443", "*.svc:443", "a.b.svc", "*"]);
    assert_eq!(token(users.for_host("a.b.svc:443")), Some("of a.b.svc:443"));
    assert_eq!(token(users.for_host("z.b.svc:443")), Some("of *.b.svc:443"));
    assert_eq!(token(users.for_host("z.y.svc:443")), Some("of *.svc:443"));
    assert_eq!(token(users.for_host("elsewhere:8443")), Some("of *"));
}

#[test]
fn user_name_without_a_port_matches_only_port_443() {
    let users = users(&["a.b.svc", "*.example.com", "127.0.0.1:9443"]);
    assert_eq!(token(users.for_host("a.b.svc:443")), Some("of a.b.svc"));
    assert_eq!(token(users.for_host("x.example.com:443")), Some("of *.example.com"));
    assert_eq!(token(users.for_host("127.0.0.1:9443")), Some("of 127.0.0.1:9443"));
    assert_eq!(token(users.for_host("a.b.svc:8443")), None);
    assert_eq!(token(users.for_host("127.0.0.1:9444")), None);
}

#[test]
fn user_of_the_current_context_is_the_default_for_unlisted_hosts() {
    let text = b"current-context: c\ncontexts:\n- {name: c, context: {user: me}}\nusers:\n- {name: me, user: {token: mine}}\n";
    let users = KubeconfigUsers::parse(text).unwrap();
    assert_eq!(token(users.for_host("anywhere:1")), Some("mine"));
}

#[test]
fn empty_kubeconfig_has_no_user_for_any_host() {
    assert_eq!(KubeconfigUsers::parse(b"").unwrap().for_host("anywhere:443"), None);
}

#[test]
fn kubeconfig_user_with_impersonation_is_rejected() {
    for user in ["as: root", "as-uid: u", "as-groups: [system:masters]", "as-user-extra: {a: [b]}"] {
        let text = format!("users:\n- {{name: x, user: {{token: t, {user}}}}}\n");
        let parsed = KubeconfigUsers::parse(text.as_bytes());
        assert!(
            matches!(parsed, Err(KubeconfigError::Unsupported(_, "impersonation", _))),
            "{user}: {parsed:?}"
        );
    }
}

#[test]
fn exec_credential_plugin_of_any_user_is_rejected() {
    let text = b"users:\n- {name: fine, user: {token: t}}\n- {name: x, user: {exec: {command: /bin/true}}}\n";
    assert!(
        matches!(KubeconfigUsers::parse(text), Err(KubeconfigError::Unsupported(name, "exec", _)) if name == "x")
    );
}
