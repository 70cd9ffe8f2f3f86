//! A gRPC client: unary calls and bidirectional streams over HTTP/2 with `prost` messages, to one of several endpoints.
//!
//! - [`Channel`] holds at most one connection per endpoint and makes calls on the first that works.
//! - [`GrpcStream`] is a bidirectional stream.
//! - [`GrpcStatus`] is a failed call. Its `may_have_run` says whether the request can have been executed, which decides whether a
//!   write may be repeated.
//!
//! ```no_run
//! # #[derive(Clone, PartialEq, prost::Message)] struct StatusRequest {}
//! # #[derive(Clone, PartialEq, prost::Message)] struct StatusResponse { #[prost(string, tag = "2")] version: String }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use grpc::{Channel, ChannelConfig, GrpcEndpoint, Retry};
//!
//! let channel = Channel::new(ChannelConfig::new(vec![GrpcEndpoint::parse("http://127.0.0.1:2379", None)?]));
//! let call = channel.unary("/etcdserverpb.Maintenance/Status", &StatusRequest {}, Retry::OtherEndpoints, Duration::from_secs(2));
//! let status: StatusResponse = call.await?;
//! println!("etcd {}", status.version);
//! # Ok(())
//! # }
//! ```
//!
//! It is our own because the crates that do this need `protoc` to build etcd's messages; see `docs/decisions/`.

mod channel;
mod connect;
mod endpoint;
mod frame;
mod status;
mod stream;
mod tls;

pub use channel::{Channel, ChannelConfig, Retry};
pub use endpoint::{GrpcEndpoint, GrpcEndpointError};
pub use status::{GrpcCode, GrpcStatus};
pub use stream::{GrpcSender, GrpcStream};
pub use tls::TlsFiles;
