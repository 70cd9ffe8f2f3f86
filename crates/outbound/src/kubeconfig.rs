//! Builds an endpoint from a kubeconfig file.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use authz::kubeconfig::{self, KubeconfigConnection, KubeconfigError, PemSource};
use http::Uri;
use runtime::files::{go_words, read};

use super::{ClientIdentity, Endpoint, OutboundCredential, ServerTrust};

/// Reads the current context of a kubeconfig. Exec plugins and auth providers are rejected, because the
/// server runs no programs.
///
/// `files` receives the kubeconfig and the files it names, so that the caller can watch them for changes,
/// also if the result is an error.
pub fn from_kubeconfig(path: &Path, files: &mut Vec<PathBuf>) -> Result<Endpoint, String> {
    files.push(path.to_owned());
    if let Err(error) = std::fs::metadata(path)
        && error.kind() == std::io::ErrorKind::NotFound
    {
        return Err(format!("stat {}: no such file or directory", path.display()));
    }
    let text = read(path).map_err(|why| {
        format!("error loading config file {}: open {}: {why}", quoted_path(path), path.display())
    })?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let missing = RefCell::new(Vec::new());
    let opens = |file: &str| {
        let file = directory.join(file);
        let there = runtime::files::open(&file)
            .map(|_| ())
            .map_err(|error| format!("open {}: {}", file.display(), go_words(&error)));
        if there.is_err() {
            missing.borrow_mut().push(file.clone());
        }
        (file.display().to_string(), there)
    };
    let connection = KubeconfigConnection::parse(&text, &opens).map_err(|error| match error {
        KubeconfigError::Unreadable(why) => format!("error loading config file {}: {why}", quoted_path(path)),
        error => error.to_string(),
    });
    files.append(&mut missing.borrow_mut());
    let KubeconfigConnection {
        server,
        certificate_authority,
        server_name,
        insecure,
        proxy_url,
        certificate,
        credential,
    } = connection?;
    if !proxy_url.is_empty() {
        return Err("proxy-url is not supported: the server connects directly".to_owned());
    }
    let authorities =
        certificate_authority.map(|pem| load("certificate-authority", &pem, directory, files)).transpose()?;
    let user = kubeconfig::KubeconfigUser { certificate, credential };
    let (identity, credential) = client_credentials(&user, directory, files)?;
    let trust = match authorities {
        Some(_) if insecure => {
            return Err(
                "specifying a root certificates file with the insecure flag is not allowed".to_owned()
            );
        }
        Some(pem) => ServerTrust::Authorities(pem),
        None if insecure => ServerTrust::AnyServer,
        None => ServerTrust::System,
    };
    Ok(Endpoint {
        server_name: (!server_name.is_empty()).then(|| server_name.to_string()),
        trust,
        identity,
        credential,
        ..Endpoint::new(base_url(&server)?)
    })
}

/// Loads the certificate and credential of a kubeconfig user. File names are relative to `directory`. The files
/// read are added to `files`, except the token file, which is read again on its own; it is added if it cannot
/// be read.
pub fn client_credentials(
    user: &kubeconfig::KubeconfigUser,
    directory: &Path,
    files: &mut Vec<PathBuf>,
) -> Result<(Option<ClientIdentity>, OutboundCredential), String> {
    let identity = match &user.certificate {
        None => None,
        Some((certificate, key)) => Some(ClientIdentity {
            certificate: load("client-cert", certificate, directory, files)?,
            key: load("client-key", key, directory, files)?,
        }),
    };
    let credential = match &user.credential {
        kubeconfig::KubeconfigCredential::None => OutboundCredential::None,
        kubeconfig::KubeconfigCredential::Token(token) => OutboundCredential::Bearer(token.to_string()),
        kubeconfig::KubeconfigCredential::Basic(name, password) => {
            OutboundCredential::Basic(name.to_string(), password.to_string())
        }
        kubeconfig::KubeconfigCredential::TokenFile(file) => {
            let file = directory.join(file.as_str());
            // As in client-go, a token file that is unreadable at startup is an error.
            if let Err(why) = read(&file) {
                let why = format!("open {}: {why}", file.display());
                files.push(file);
                return Err(why);
            }
            OutboundCredential::TokenFile(file)
        }
    };
    Ok((identity, credential))
}

fn load(
    what: &str,
    material: &PemSource,
    directory: &Path,
    files: &mut Vec<PathBuf>,
) -> Result<Vec<u8>, String> {
    match material {
        PemSource::Inline(bytes) => Ok(bytes.clone()),
        PemSource::File(file) => {
            let file = directory.join(file.as_str());
            let content =
                read(&file).map_err(|why| format!("unable to read {what} {}: {why}", file.display()));
            files.push(file);
            content
        }
    }
}

/// The URL without query and trailing slash, to which reviews are posted.
fn base_url(server: &str) -> Result<Uri, String> {
    let given = if server.contains("://") { server.to_owned() } else { format!("https://{server}") };
    let named = given.split_once("://").map_or("", |(_, rest)| rest);
    if named.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@')) {
        // A password in the URL would appear wherever the URL is printed, also in the errors below.
        return Err("host must not carry a user or password; use the kubeconfig's user instead".to_owned());
    }
    let bad = || format!("host must be a URL or a host:port pair: {}", api::field::quote(server));
    let uri: Uri = given.parse().map_err(|_| bad())?;
    let (scheme, authority) = (uri.scheme_str().ok_or_else(bad)?, uri.authority().ok_or_else(bad)?);
    let path = uri.path().trim_end_matches('/');
    let path = if path.is_empty() { "/" } else { path };
    format!("{scheme}://{authority}{path}").parse().map_err(|_| bad())
}

fn quoted_path(path: &Path) -> String {
    api::field::quote(&path.display().to_string())
}
