//! A TCP proxy whose connections a test can cut.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to one address until it is cut.
pub(crate) struct Proxy {
    pub(crate) url: String,
    is_cut: Arc<watch::Sender<bool>>,
}

impl Proxy {
    pub(crate) async fn to(url: &str) -> Proxy {
        let target: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let is_cut = Arc::new(watch::Sender::new(false));
        let cut = Arc::clone(&is_cut);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut cut = cut.subscribe();
                tokio::spawn(async move {
                    if *cut.borrow_and_update() {
                        return;
                    }
                    let Ok(mut far) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Proxy { url, is_cut }
    }

    /// Closes all connections, and new ones at once.
    pub(crate) fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    pub(crate) fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}
