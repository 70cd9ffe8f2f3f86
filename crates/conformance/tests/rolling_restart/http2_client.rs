//! An HTTP/2 client that follows GOAWAY: it opens no new stream on a connection that the server is closing, and connects again.

use std::sync::Arc;

use bytes::Bytes;
use conformance::client::{Trust, tls};
use conformance::server::ADMIN_TOKEN;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Connections that are tried for one request before it fails.
const CONNECTIONS: usize = 10;

/// A client with the administrator's credentials and one connection.
pub(crate) struct Http2Client {
    authority: String,
    sender: Option<SendRequest<Full<Bytes>>>,
    /// Connections that were opened so far.
    pub(crate) connections: usize,
}

impl Http2Client {
    /// A client that connects to `url` (`https://HOST:PORT`) with its first request.
    pub(crate) fn new(url: &str) -> Http2Client {
        let authority = url.trim_start_matches("https://").to_owned();
        Http2Client { authority, sender: None, connections: 0 }
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn json(
        &mut self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<(u16, Value), String> {
        let answer = self.send(method, path, body).await?;
        let code = answer.status().as_u16();
        let body = answer
            .into_body()
            .collect()
            .await
            .map_err(|error| format!("{path}: the answer breaks: {error}"))?;
        Ok((code, serde_json::from_slice(&body.to_bytes()).unwrap_or_default()))
    }

    /// Sends a request. It is sent again on another connection only if this one took no new stream.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Response<Incoming>, String> {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.authority))
            .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
            .header("content-type", "application/json")
            .body(Full::new(body))
            .unwrap();
        for _ in 0..CONNECTIONS {
            let sender = match &mut self.sender {
                Some(sender) => sender,
                None => {
                    self.connections += 1;
                    self.sender.insert(connect(&self.authority).await?)
                }
            };
            if sender.ready().await.is_err() {
                self.sender = None;
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(answer) => return Ok(answer),
                Err(mut refused) => match refused.take_message() {
                    Some(unsent) => {
                        request = unsent;
                        self.sender = None;
                    }
                    None => return Err(format!("{path}: {:?}", refused.error())),
                },
            }
        }
        Err(format!("{path}: no connection takes the request"))
    }
}

async fn connect(authority: &str) -> Result<SendRequest<Full<Bytes>>, String> {
    let stream = TcpStream::connect(authority).await.map_err(|error| format!("cannot connect: {error}"))?;
    let mut config = tls(Trust::Anything, None).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let stream = stream.map_err(|error| format!("the TLS handshake fails: {error}"))?;
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|error| format!("the HTTP/2 handshake fails: {error}"))?;
    tokio::spawn(connection);
    Ok(sender)
}
