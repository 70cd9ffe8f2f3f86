//! An in-memory server on a free port, for tests of this project and of controller authors.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use transport::pki::{self, TlsIdentity};

use crate::config::{Config, ConfigError};
use crate::start::{RunningServer, start};

/// An in-memory server, with the credentials to use it as administrator.
#[derive(Debug)]
pub struct Ephemeral {
    pub running: RunningServer,
    /// PEM certificate of the CA that signed the serving certificate.
    pub ca_pem: String,
    /// The CA with its key, for issuing further client certificates.
    pub authority: TlsIdentity,
    /// A client certificate in the group `system:masters`.
    pub admin: TlsIdentity,
}

impl Ephemeral {
    /// Starts a server with the default configuration.
    pub async fn start() -> Result<Self, ConfigError> {
        Self::start_with(|_| {}).await
    }

    /// Starts a server after `change` has modified the default configuration.
    pub async fn start_with(change: impl FnOnce(&mut Config)) -> Result<Self, ConfigError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(0);
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let made = || -> Result<(TlsIdentity, TlsIdentity, TlsIdentity), rcgen::Error> {
            let authority = pki::authority("portcullis", now)?;
            let serving = pki::serving(&authority, &["localhost".to_owned()], &[local], now)?;
            let admin = pki::client(&authority, "kubernetes-admin", &[authn::names::MASTERS], now)?;
            Ok((authority, serving, admin))
        };
        let (authority, serving, admin) = made().map_err(ConfigError::other)?;
        let mut config = Config::new(SocketAddr::new(local, 0), serving);
        config.authentication.client_ca = Some(authority.cert_pem.clone().into_bytes());
        config.controllers.root_ca = Some(authority.cert_pem.clone());
        change(&mut config);
        let running = start(config).await?;
        Ok(Ephemeral { running, ca_pem: authority.cert_pem.clone(), authority, admin })
    }

    /// A kubeconfig with the administrator's client certificate.
    pub fn kubeconfig(&self) -> String {
        pki::kubeconfig(&format!("https://{}", self.running.address), &self.ca_pem, &self.admin)
    }
}
