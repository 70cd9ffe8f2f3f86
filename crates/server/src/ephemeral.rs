//! A server in memory on a free port, for tests: ours, and those of controller authors.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::config::{Config, ConfigError};
use crate::pki::{self, Identity};
use crate::start::{Running, start};

/// A server in memory, with everything a client needs to use it as its administrator.
#[derive(Debug)]
pub struct Ephemeral {
    /// The server.
    pub running: Running,
    /// PEM of the authority that signed its certificate.
    pub ca_pem: String,
    /// The authority itself, for making further client certificates.
    pub authority: Identity,
    /// A client certificate in `system:masters`.
    pub admin: Identity,
}

impl Ephemeral {
    /// Starts one.
    pub async fn start() -> Result<Self, ConfigError> {
        Self::start_with(|_| {}).await
    }

    /// Starts one with a changed configuration.
    pub async fn start_with(change: impl FnOnce(&mut Config)) -> Result<Self, ConfigError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(0);
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let made = || -> Result<(Identity, Identity, Identity), rcgen::Error> {
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

    /// A kubeconfig for its administrator.
    pub fn kubeconfig(&self) -> String {
        pki::kubeconfig(&format!("https://{}", self.running.address), &self.ca_pem, &self.admin)
    }
}
