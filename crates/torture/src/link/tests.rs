use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{Flow, LinkFault, LinkKind, ProxyLink};

const SOON: Duration = Duration::from_millis(300);
const LATER: Duration = Duration::from_secs(10);

/// A link to a server that returns what it receives, and a connection through it.
async fn echo(kind: LinkKind) -> (ProxyLink, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    let link = ProxyLink::open(kind, target).await.unwrap();
    let stream = TcpStream::connect(link.address).await.unwrap();
    (link, stream)
}

async fn exchange(stream: &mut TcpStream, text: &[u8]) -> std::io::Result<()> {
    stream.write_all(text).await?;
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).await?;
    assert_eq!(answer, text);
    Ok(())
}

#[tokio::test]
async fn bytes_pass_in_both_directions() {
    let (_link, mut stream) = echo(LinkKind::Client).await;
    timeout(LATER, exchange(&mut stream, b"hello")).await.unwrap().unwrap();
}

#[tokio::test]
async fn delayed_bytes_arrive_later() {
    let (link, mut stream) = echo(LinkKind::Client).await;
    link.set(LinkFault::both(Flow::Delay(Duration::from_millis(50))));
    let start = Instant::now();
    timeout(LATER, exchange(&mut stream, b"hello")).await.unwrap().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(100), "{:?}", start.elapsed());
}

#[tokio::test]
async fn held_bytes_arrive_when_the_link_is_healed() {
    let answers = LinkFault { to_target: Flow::Pass, to_client: Flow::Hold };
    let requests = LinkFault { to_target: Flow::Hold, to_client: Flow::Pass };
    for fault in [LinkFault::both(Flow::Hold), answers, requests] {
        let (link, mut stream) = echo(LinkKind::Client).await;
        link.set(fault);
        stream.write_all(b"hello").await.unwrap();
        let mut answer = [0; 5];
        assert!(timeout(SOON, stream.peek(&mut answer)).await.is_err(), "{fault:?}");
        link.heal();
        timeout(LATER, stream.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(&answer, b"hello");
    }
}

#[tokio::test]
async fn a_reset_breaks_open_connections_and_not_later_ones() {
    let (link, mut stream) = echo(LinkKind::Client).await;
    timeout(LATER, exchange(&mut stream, b"hello")).await.unwrap().unwrap();
    link.reset();
    let error = timeout(LATER, stream.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let mut again = TcpStream::connect(link.address).await.unwrap();
    timeout(LATER, exchange(&mut again, b"hello")).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_fault_of_one_source_spares_the_others() {
    let (link, mut held) = echo(LinkKind::Peer).await;
    link.set_from("aa", LinkFault::both(Flow::Hold));
    held.write_all(b"GET / HTTP/1.1\r\nX-Server-From: aa\r\n\r\n").await.unwrap();
    assert!(timeout(SOON, held.read_u8()).await.is_err());
    let mut other = TcpStream::connect(link.address).await.unwrap();
    timeout(LATER, exchange(&mut other, b"GET / HTTP/1.1\r\nX-Server-From: bb\r\n\r\n"))
        .await
        .unwrap()
        .unwrap();
}
