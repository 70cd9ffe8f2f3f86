//! A kubeconfig file → the endpoint it describes, and the files it is made of.

use std::path::{Path, PathBuf};

use authz::kubeconfig::{self, Connection, KubeconfigError, Material};
use http::Uri;

use super::{Credential, Endpoint, Identity, Trust};
use crate::files::{go_words, read};

/// A kubeconfig that has been read, with everything it names.
#[derive(Clone, Debug)]
pub struct FromKubeconfig {
    /// What it describes.
    pub endpoint: Endpoint,
    /// The kubeconfig and the files it names, all of which may change.
    pub files: Vec<PathBuf>,
}

/// Reads the current context of a kubeconfig. Exec plugins and auth providers are refused: the server runs no programs.
pub fn from_kubeconfig(path: &Path) -> Result<FromKubeconfig, String> {
    if let Err(error) = std::fs::metadata(path)
        && error.kind() == std::io::ErrorKind::NotFound
    {
        return Err(format!("stat {}: no such file or directory", path.display()));
    }
    let text = read(path).map_err(|why| {
        format!("error loading config file {}: open {}: {why}", shown(path), path.display())
    })?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let opens = |file: &str| {
        let file = folder.join(file);
        let there = std::fs::File::open(&file)
            .map(|_| ())
            .map_err(|error| format!("open {}: {}", file.display(), go_words(&error)));
        (file.display().to_string(), there)
    };
    let connection = Connection::parse(&text, &opens).map_err(|error| match error {
        KubeconfigError::Unreadable(why) => format!("error loading config file {}: {why}", shown(path)),
        error => error.to_string(),
    })?;
    let Connection {
        server,
        certificate_authority,
        server_name,
        insecure,
        proxy_url,
        certificate,
        credential,
    } = connection;
    if !proxy_url.is_empty() {
        return Err("proxy-url is not supported: the server connects directly".to_owned());
    }
    let mut files = vec![path.to_owned()];
    let mut load = |what: &str, material: Material| -> Result<Vec<u8>, String> {
        match material {
            Material::Inline(bytes) => Ok(bytes),
            Material::File(file) => {
                let file = folder.join(file.as_str());
                let bytes =
                    read(&file).map_err(|why| format!("unable to read {what} {}: {why}", shown(&file)))?;
                files.push(file);
                Ok(bytes)
            }
        }
    };
    let authorities = certificate_authority.map(|pem| load("certificate-authority", pem)).transpose()?;
    let identity = match certificate {
        None => None,
        Some((certificate, key)) => {
            Some(Identity { certificate: load("client-cert", certificate)?, key: load("client-key", key)? })
        }
    };
    let trust = match authorities {
        Some(_) if insecure => {
            return Err(
                "specifying a root certificates file with the insecure flag is not allowed".to_owned()
            );
        }
        Some(pem) => Trust::Authorities(pem),
        None if insecure => Trust::Anybody,
        None => Trust::System,
    };
    let credential = match credential {
        kubeconfig::Credential::None => Credential::None,
        kubeconfig::Credential::Token(token) => Credential::Bearer(token.to_string()),
        kubeconfig::Credential::Basic(name, password) => {
            Credential::Basic(name.to_string(), password.to_string())
        }
        kubeconfig::Credential::TokenFile(file) => {
            let file = folder.join(file.as_str());
            // As Kubernetes' client: one that cannot be read at the start is an error.
            read(&file).map_err(|why| format!("open {}: {why}", file.display()))?;
            Credential::TokenFile(file)
        }
    };
    let endpoint = Endpoint {
        server_name: (!server_name.is_empty()).then(|| server_name.to_string()),
        trust,
        identity,
        credential,
        ..Endpoint::new(base_url(&server)?)
    };
    Ok(FromKubeconfig { endpoint, files })
}

/// The URL that reviews are posted to: the path without a slash at its end, and no query.
fn base_url(server: &str) -> Result<Uri, String> {
    let given = if server.contains("://") { server.to_owned() } else { format!("https://{server}") };
    let bad = || format!("host must be a URL or a host:port pair: {}", api::field::quote(server));
    let uri: Uri = given.parse().map_err(|_| bad())?;
    let (scheme, authority) = (uri.scheme_str().ok_or_else(bad)?, uri.authority().ok_or_else(bad)?);
    if authority.as_str().contains('@') {
        // It would be shown wherever the address is.
        return Err("host must not carry a user or password; use the kubeconfig's user instead".to_owned());
    }
    let path = uri.path().trim_end_matches('/');
    let path = if path.is_empty() { "/" } else { path };
    format!("{scheme}://{authority}{path}").parse().map_err(|_| bad())
}

fn shown(path: &Path) -> String {
    api::field::quote(&path.display().to_string())
}
