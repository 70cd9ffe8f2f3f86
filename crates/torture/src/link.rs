//! TCP proxies whose traffic can be delayed, held back in one or both directions, and reset.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use conformance::{Problem, Result};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a connection may take to name its source.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest request head that is searched for the source.
const MAX_HEAD: usize = 8 * 1024;
/// The header with the member that opened a connection between etcd members.
const SOURCE_HEADER: &str = "x-server-from:";

/// Treatment of the bytes in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    #[default]
    Pass,
    Delay(Duration),
    /// Nothing arrives while this lasts; connections stay open.
    Hold,
}

/// Treatment of the connections of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFault {
    pub to_target: Flow,
    pub to_client: Flow,
}

impl LinkFault {
    pub fn both(flow: Flow) -> LinkFault {
        LinkFault { to_target: flow, to_client: flow }
    }
}

/// The state of a link: how it treats connections, by the member that opened them.
#[derive(Clone, Debug, Default)]
struct LinkState {
    otherwise: LinkFault,
    by_source: BTreeMap<String, LinkFault>,
    /// Increases with every reset.
    resets: u64,
}

impl LinkState {
    fn fault(&self, source: Option<&str>) -> LinkFault {
        source.and_then(|source| self.by_source.get(source)).copied().unwrap_or(self.otherwise)
    }
}

/// Which connections a link can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// From a server to the client port of a member.
    Client,
    /// From the other members to the peer port of a member; their requests name the member that sends them.
    Peer,
}

/// A proxy in front of one address.
#[derive(Debug)]
pub struct ProxyLink {
    address: SocketAddr,
    state: watch::Sender<LinkState>,
    accepting: JoinHandle<()>,
}

impl Drop for ProxyLink {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl ProxyLink {
    pub async fn open(kind: LinkKind, target: SocketAddr) -> Result<ProxyLink> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|e| Problem::at("a proxy", e))?;
        let address = listener.local_addr().map_err(|e| Problem::at("a proxy", e))?;
        let state = watch::Sender::new(LinkState::default());
        let states = state.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(connection(kind, near, target, states.subscribe()));
            }
        });
        Ok(ProxyLink { address, state, accepting })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Applies a fault to all connections, now and later.
    pub fn set(&self, fault: LinkFault) {
        self.state.send_modify(|state| state.otherwise = fault);
    }

    /// Applies a fault to the connections that one member opens.
    pub fn set_from(&self, source: &str, fault: LinkFault) {
        self.state.send_modify(|state| {
            state.by_source.insert(source.to_owned(), fault);
        });
    }

    pub fn heal(&self) {
        self.state.send_modify(|state| {
            state.otherwise = LinkFault::default();
            state.by_source.clear();
        });
    }

    /// Resets all open connections; new ones work as before.
    pub fn reset(&self) {
        self.state.send_modify(|state| state.resets += 1);
    }
}

async fn connection(
    kind: LinkKind,
    mut near: TcpStream,
    target: SocketAddr,
    mut state: watch::Receiver<LinkState>,
) {
    let resets = state.borrow_and_update().resets;
    let source = match kind {
        LinkKind::Client => None,
        LinkKind::Peer => timeout(SOURCE_TIMEOUT, source(&near)).await.ok().flatten(),
    };
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let is_reset = {
        let (near_read, near_write) = near.split();
        let (far_read, far_write) = far.split();
        let source = source.as_deref();
        let there = pump(near_read, far_write, state.clone(), source, |fault| fault.to_target);
        let back = pump(far_read, near_write, state.clone(), source, |fault| fault.to_client);
        tokio::select! {
            _ = async { tokio::join!(there, back) } => false,
            reset = state.wait_for(|state| state.resets != resets) => reset.is_ok(),
        }
    };
    if is_reset {
        for socket in [&near, &far] {
            // Closing a socket with this option sends RST.
            let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
    }
}

/// The member that a connection comes from, read from its first request without taking it off the connection.
async fn source(near: &TcpStream) -> Option<String> {
    let mut head = vec![0; MAX_HEAD];
    loop {
        near.readable().await.ok()?;
        let length = near.peek(&mut head).await.ok()?;
        let text = String::from_utf8_lossy(head.get(..length)?).to_ascii_lowercase();
        if let Some((_, rest)) = text.split_once(SOURCE_HEADER)
            && let Some((value, _)) = rest.split_once("\r\n")
        {
            return Some(value.trim().to_owned());
        }
        if length == 0 || length == MAX_HEAD || text.contains("\r\n\r\n") {
            return None;
        }
        // The rest of the head has not arrived; peeking again returns at once.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Copies bytes in one direction until it ends.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut state: watch::Receiver<LinkState>,
    source: Option<&str>,
    direction: fn(LinkFault) -> Flow,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(length) => length,
        };
        loop {
            let flow = direction(state.borrow_and_update().fault(source));
            match flow {
                Flow::Pass => break,
                Flow::Delay(time) => {
                    tokio::time::sleep(time).await;
                    break;
                }
                Flow::Hold => {
                    if state.changed().await.is_err() {
                        return;
                    }
                }
            }
        }
        let Some(bytes) = buffer.get(..length) else { break };
        if to.write_all(bytes).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests;
