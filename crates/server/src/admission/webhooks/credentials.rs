//! The credentials for webhooks, read from a kubeconfig.

use std::path::Path;

use authz::kubeconfig::KubeconfigUsers;
use outbound::client_credentials;
use runtime::files::read as read_file;

use super::WebhookClientCredentials;

/// Client credentials for webhooks, selected by host.
#[derive(Clone, Debug, Default)]
pub(crate) struct KubeconfigCredentials {
    users: KubeconfigUsers<WebhookClientCredentials>,
}

impl KubeconfigCredentials {
    /// Reads the users of a kubeconfig, with the files that they name.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display().to_string();
        let quoted = api::field::quote(&shown);
        let text = read_file(path).map_err(|why| match why.as_str() {
            "no such file or directory" => format!("stat {shown}: {why}"),
            _ => format!("error loading config file {quoted}: {why}"),
        })?;
        let users = KubeconfigUsers::parse(&text)
            .map_err(|error| format!("error loading config file {quoted}: {error}"))?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        let users = users.try_map(|user| {
            let (identity, credential) = client_credentials(&user, directory, &mut Vec::new())?;
            Ok::<_, String>(WebhookClientCredentials { identity, credential })
        })?;
        Ok(KubeconfigCredentials { users })
    }

    /// The credentials for a server, by its `HOST:PORT`.
    pub(super) fn for_host(&self, host_port: &str) -> Option<&WebhookClientCredentials> {
        self.users.for_host(host_port)
    }
}
