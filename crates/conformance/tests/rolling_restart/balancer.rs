//! A TCP load balancer: new connections go to the servers whose `/readyz` succeeds, in turn.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conformance::client::{Credentials, Trust};
use conformance::{Client, Server};
use tokio::net::{TcpListener, TcpStream};

/// Interval between two checks of a server.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The load balancer. Its tasks end with the runtime of the test.
pub(crate) struct LoadBalancer {
    /// The base URL, `https://HOST:PORT`.
    pub(crate) url: String,
    backends: Arc<Mutex<Vec<BalancedServer>>>,
}

#[derive(Clone)]
struct BalancedServer {
    address: String,
    is_ready: bool,
}

impl LoadBalancer {
    pub(crate) async fn start() -> LoadBalancer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let backends: Arc<Mutex<Vec<BalancedServer>>> = Arc::default();
        let of_connections = Arc::clone(&backends);
        tokio::spawn(async move {
            let mut turn = 0_usize;
            while let Ok((near, _)) = listener.accept().await {
                turn += 1;
                let ready: Vec<String> = of_connections
                    .lock()
                    .unwrap()
                    .iter()
                    .filter(|b| b.is_ready)
                    .map(|b| b.address.clone())
                    .collect();
                // Without a backend the connection is closed.
                let Some(address) = ready.get(turn % ready.len().max(1)).cloned() else { continue };
                tokio::spawn(forward(near, address));
            }
        });
        LoadBalancer { url, backends }
    }

    /// Sends connections to this server from now on. It must be ready.
    pub(crate) fn add(&self, server: &Server) {
        let address = server.url.trim_start_matches("https://").to_owned();
        self.backends.lock().unwrap().push(BalancedServer { address: address.clone(), is_ready: true });
        let probe = Client::new(&server.url, Trust::Anything, Credentials::None).unwrap();
        let backends = Arc::clone(&self.backends);
        tokio::spawn(async move {
            loop {
                let is_ready = probe.get("/readyz").await.is_ok_and(|answer| answer.code == 200);
                {
                    let mut backends = backends.lock().unwrap();
                    let Some(own) = backends.iter_mut().find(|backend| backend.address == address) else {
                        return;
                    };
                    own.is_ready = is_ready;
                }
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        });
    }

    pub(crate) fn remove(&self, server: &Server) {
        let address = server.url.trim_start_matches("https://");
        self.backends.lock().unwrap().retain(|backend| backend.address != address);
    }
}

/// Copies bytes in both directions until one side ends.
async fn forward(mut near: TcpStream, address: String) {
    let address: SocketAddr = address.parse().unwrap();
    if let Ok(mut far) = TcpStream::connect(address).await {
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    }
}
