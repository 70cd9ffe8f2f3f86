//! Kubeconfig files: credentials for admission webhooks, and addresses of authorization webhooks.

use authz::kubeconfig::{KubeconfigConnection, KubeconfigUsers};
use fuzz::Corpus;

const TOKENS: &[&str] = &[
    "\n",
    "\n  ",
    "\n- ",
    "name: ",
    "user: {token: t}",
    "exec: {command: x}",
    "client-certificate-data: ",
    "certificate-authority: /x",
    "tokenFile: ",
    "proxy-url: ",
    "https://",
    "http://",
    "[::1]",
    "*.a.example",
    ":443",
    "current-context: ",
    "{",
    "}",
    "[",
    "]",
    "&a ",
    "*a",
    "!!binary ",
    "~",
    "AA==",
];

#[test]
fn reading_kubeconfigs_never_panics() {
    let seeds = [
        "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {server: \"https://a.example:8443/p\", certificate-authority-data: AA==, tls-server-name: a}\nusers:\n- name: u\n  user: {token: t}\ncontexts:\n- name: x\n  context: {cluster: c, user: u}\ncurrent-context: x\n",
        "apiVersion: v1\nkind: Config\nusers:\n- name: 'a.ns.svc:443'\n  user: {username: a, password: b}\n- name: '*.ns.svc'\n  user: {client-certificate: /c, client-key: /k}\n- name: '*'\n  user: {tokenFile: /t}\n",
        r#"{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1","insecure-skip-tls-verify":true}}],"users":[{"name":"u","user":{}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"current-context":"c"}"#,
    ];
    fuzz::run(&Corpus::new(seeds, TOKENS).inputs(), |input| {
        let exists = |path: &str| (path.to_owned(), Ok(()));
        let missing = |path: &str| (path.to_owned(), Err("no such file or directory".to_owned()));
        let _ = KubeconfigConnection::parse(input, &missing);
        if let Ok(connection) = KubeconfigConnection::parse(input, &exists)
            && connection.server.is_empty()
        {
            return Err("a connection to nowhere".to_owned());
        }
        if let Ok(users) = KubeconfigUsers::parse(input) {
            for host in ["a.ns.svc:443", "b.ns.svc:8443", "", "[::1]:443", ":"] {
                let _ = users.for_host(host);
            }
        }
        Ok(())
    });
}
