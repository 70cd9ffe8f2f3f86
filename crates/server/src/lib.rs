//! TLS, HTTP, the request pipeline, handlers, metrics, configuration.
//!
//! A library first: [`start`] runs a server from a [`Config`] and hands back a [`Running`], in a test as in the binary;
//! [`Ephemeral`] is one in memory on a free port, ready in milliseconds. Read [`pipeline`] first.

pub mod pipeline;

pub mod accept;
pub mod addresses;
mod admission;
mod aggregation;
pub mod audit;
pub mod authorization;
pub mod body;
pub mod body_budget;
mod bootstrap;
pub mod call;
pub mod catalog;
pub mod client;
mod cluster;
pub mod config;
pub mod connections;
mod controllers;
pub mod conversion;
pub mod decode;
mod definitions;
mod device_access;
pub mod encode;
mod ephemeral;
mod files;
mod follow;
mod gather;
pub mod handlers;
pub mod health;
mod heard;
pub mod heavy;
mod hints;
pub mod identity;
mod kept;
pub mod manifests;
pub mod metrics;
pub mod negotiate;
pub mod options;
pub mod outbound;
pub mod ownership;
pub mod paced;
pub mod pki;
mod published;
mod random;
mod reload;
pub mod request_info;
pub mod respond;
pub mod seats;
mod shape;
mod splice;
mod start;
pub mod state;
pub mod table;
pub mod tls;
pub mod tokens;
pub mod trust;
pub mod version;
pub mod write;

pub use authorization::Authorization;
pub use config::{Config, ConfigError, Data, FollowedFiles, Redirects};
pub use ephemeral::Ephemeral;
pub use start::{Running, start};
