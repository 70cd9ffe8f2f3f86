//! A TCP proxy whose connections a test can cut.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections to one address until it is cut.
pub(crate) struct Proxy {
    pub(crate) url: String,
    is_cut: Arc<watch::Sender<bool>>,
    target: Arc<Mutex<SocketAddr>>,
}

fn address(url: &str) -> SocketAddr {
    url.strip_prefix("http://").unwrap().parse().unwrap()
}

impl Proxy {
    pub(crate) async fn to(url: &str) -> Proxy {
        let target = Arc::new(Mutex::new(address(url)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let is_cut = Arc::new(watch::Sender::new(false));
        let (cut, to) = (Arc::clone(&is_cut), Arc::clone(&target));
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut cut = cut.subscribe();
                let target = *to.lock().unwrap();
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
        Proxy { url, is_cut, target }
    }

    /// Closes all connections, and new ones at once.
    pub(crate) fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// Forwards later connections to another address.
    pub(crate) fn retarget(&self, url: &str) {
        *self.target.lock().unwrap() = address(url);
    }

    pub(crate) fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}
