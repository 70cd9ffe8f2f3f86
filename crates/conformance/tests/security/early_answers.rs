//! Requests that are answered before their body has arrived: the client receives the answer instead of a reset.

use std::sync::Arc;

use conformance::client::{Trust, tls};
use conformance::{Client, Server};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::callers::SOON;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// HTTP/2 frame types and flags.
const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// The bytes with which a client begins an HTTP/2 connection.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// An uncompressed header field of at most 126 bytes each.
pub(crate) fn header(name: &str, value: &str) -> Vec<u8> {
    let mut out = vec![0, u8::try_from(name.len()).unwrap()];
    out.extend(name.as_bytes());
    out.push(u8::try_from(value.len()).unwrap());
    out.extend(value.as_bytes());
    out
}

pub(crate) async fn connect(client: &Client, protocol: &[u8]) -> TlsStream<TcpStream> {
    let tcp = TcpStream::connect(client.authority().to_owned()).await.unwrap();
    let mut config = tls(Trust::Anything, None).unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
}

/// The next frame: type, flags, stream.
pub(crate) async fn next(stream: &mut TlsStream<TcpStream>) -> (u8, u8, u32) {
    let read = async {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.unwrap();
        (head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]))
    };
    tokio::time::timeout(SOON, read).await.expect("no frame came")
}

#[tokio::test]
async fn an_http2_stream_is_not_reset_while_the_client_sends_a_rejected_body() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let mut stream = connect(&admin, b"h2").await;
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    for (number, token) in [(1, "alicetoken"), (3, "nobody")] {
        let headers = [
            header(":method", "POST"),
            header(":path", SECRETS),
            header(":scheme", "https"),
            header(":authority", "x"),
            header("authorization", &format!("Bearer {token}")),
            header("content-type", "application/json"),
            header("content-length", "1000"),
        ];
        stream.write_all(&frame(HEADERS, END_HEADERS, number, &headers.concat())).await.unwrap();
        stream.flush().await.unwrap();
        // The whole answer arrives before any of the body is sent.
        loop {
            let (kind, flags, of) = next(&mut stream).await;
            assert!(kind != RST_STREAM, "the stream is reset");
            if of == number && kind == DATA && flags & END_STREAM != 0 {
                break;
            }
        }
        // The frames that the server sends until it has answered a ping after the whole body.
        let mut rest = frame(DATA, 0, number, &[b' '; 500]);
        rest.extend(frame(PING, 0, 0, &[1; 8]));
        stream.write_all(&rest).await.unwrap();
        stream.flush().await.unwrap();
        loop {
            let (kind, flags, _) = next(&mut stream).await;
            assert!(kind != RST_STREAM, "the stream is reset while its body is on the way");
            if kind == PING && flags & ACK != 0 {
                break;
            }
        }
        stream.write_all(&frame(DATA, END_STREAM, number, &[b' '; 500])).await.unwrap();
    }
}

#[tokio::test]
async fn an_http1_client_that_sends_a_rejected_body_receives_the_answer() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    for (token, code) in [("alicetoken", 403), ("nobody", 401)] {
        let mut stream = connect(&admin, b"http/1.1").await;
        let head = format!(
            "POST {SECRETS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: 2000000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..200 {
            stream.write_all(&[b' '; 10_000]).await.unwrap();
            stream.flush().await.unwrap();
        }
        let mut answer = vec![0; 12];
        tokio::time::timeout(SOON, stream.read_exact(&mut answer)).await.expect("no answer").unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {code}"));
        // The connection can still be used.
        let mut all = String::new();
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let _ = tokio::time::timeout(SOON, stream.read_to_string(&mut all)).await.expect("no end");
        assert!(all.contains("HTTP/1.1 200"), "{all}");
    }
}
