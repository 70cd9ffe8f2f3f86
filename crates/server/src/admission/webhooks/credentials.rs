//! A kubeconfig → as whom each webhook is asked, by its host.

use std::path::Path;

use authz::kubeconfig::{self, Material, Users};

use super::ShownAs;
use crate::files::read as read_file;
use crate::outbound::{Credential, Identity};

/// What is shown to webhooks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    users: Users<ShownAs>,
}

impl Credentials {
    /// Reads the users of a kubeconfig, with the files they name.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display().to_string();
        let quoted = api::field::quote(&shown);
        let text = read_file(path).map_err(|why| match why.as_str() {
            "no such file or directory" => format!("stat {shown}: {why}"),
            _ => format!("error loading config file {quoted}: {why}"),
        })?;
        let users =
            Users::parse(&text).map_err(|error| format!("error loading config file {quoted}: {error}"))?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        let load = |what: &str, material: &Material| match material {
            Material::Inline(bytes) => Ok(bytes.clone()),
            Material::File(file) => {
                let file = folder.join(file.as_str());
                read_file(&file).map_err(|why| format!("unable to read {what} {}: {why}", file.display()))
            }
        };
        let users = users.try_map(|user| {
            let identity = match &user.certificate {
                None => None,
                Some((certificate, key)) => Some(Identity {
                    certificate: load("client-cert", certificate)?,
                    key: load("client-key", key)?,
                }),
            };
            let credential = match &user.credential {
                kubeconfig::Credential::None => Credential::None,
                kubeconfig::Credential::Token(token) => Credential::Bearer(token.to_string()),
                kubeconfig::Credential::Basic(name, password) => {
                    Credential::Basic(name.to_string(), password.to_string())
                }
                kubeconfig::Credential::TokenFile(file) => {
                    let file = folder.join(file.as_str());
                    read_file(&file).map_err(|why| format!("open {}: {why}", file.display()))?;
                    Credential::TokenFile(file)
                }
            };
            Ok::<_, String>(ShownAs { identity, credential })
        })?;
        Ok(Credentials { users })
    }

    /// As whom a server is asked, by its `HOST:PORT`.
    pub(super) fn for_host(&self, host_port: &str) -> Option<&ShownAs> {
        self.users.for_host(host_port)
    }
}
