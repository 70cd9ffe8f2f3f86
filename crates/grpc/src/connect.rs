//! Opens an HTTP/2 connection to an endpoint.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

use crate::endpoint::{Address, GrpcEndpoint};

/// Flow control windows: large, because lists are, and one peer on a trusted network is not to be slowed down.
const WINDOW: u32 = 16 << 20;

/// The intervals of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectTimes {
    /// For TCP, TLS and the HTTP/2 preface together.
    pub(crate) dial: Duration,
    /// A ping is sent after this long without data, with or without calls.
    pub(crate) keepalive: Duration,
    /// The connection is closed if a ping is not answered in this time.
    pub(crate) keepalive_timeout: Duration,
}

/// The body of a request: one message, or messages as they are sent to a stream.
#[derive(Debug)]
pub(crate) enum CallBody {
    Message(Option<Bytes>),
    Messages(mpsc::Receiver<Bytes>),
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            CallBody::Message(message) => Poll::Ready(message.take().map(|message| Ok(Frame::data(message)))),
            CallBody::Messages(messages) => {
                messages.poll_recv(context).map(|message| message.map(|message| Ok(Frame::data(message))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, CallBody::Message(None))
    }
}

pub(crate) async fn connect(
    endpoint: &GrpcEndpoint,
    times: ConnectTimes,
) -> io::Result<SendRequest<CallBody>> {
    let connecting = async {
        match &endpoint.address {
            Address::Unix(path) => handshake(UnixStream::connect(path).await?, times).await,
            Address::Tcp { host, port, tls } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                let Some((config, name)) = tls else { return handshake(stream, times).await };
                let connector = TlsConnector::from(std::sync::Arc::clone(config));
                handshake(connector.connect(name.clone(), stream).await?, times).await
            }
        }
    };
    let too_late = || io::Error::new(io::ErrorKind::TimedOut, format!("no connection in {:?}", times.dial));
    tokio::time::timeout(times.dial, connecting).await.unwrap_or_else(|_| Err(too_late()))
}

async fn handshake<S>(stream: S, times: ConnectTimes) -> io::Result<SendRequest<CallBody>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(times.keepalive)
        .keep_alive_timeout(times.keepalive_timeout)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(1 << 20)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "gRPC connection ended");
        }
    });
    Ok(sender)
}
