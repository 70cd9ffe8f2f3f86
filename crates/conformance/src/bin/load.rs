//! The load run against the built binary (`PORTCULLIS_BIN`) and, if `REFERENCE_URL` is set, a reference beside it.
//!
//! `REFERENCE_TOKEN` is the reference's administrator, `REFERENCE_PIDS` its processes (the API server's and etcd's, with a comma),
//! `REFERENCE_START_MS` how long it took to be ready. `LOAD_SECONDS` is how long each rate is measured. `LOAD_ONLY` is
//! `requests`, `authorization`, `policies` (of the API and from files, by themselves), `crds`, `fairness`, `overhead` (of API Priority
//! and Fairness) or `etcd`, for one part alone.
//! `LOAD_MOST` leaves out the rounds of `authorization` with more bindings. `LOAD_ETCD_SERVERS` are the URLs of the members that the
//! reference uses too; without it, `etcd` starts three members (`PORTCULLIS_ETCD`).

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use conformance::client::{Trust, tls};
use conformance::load::{self, Figures, MeasuredServer};
use conformance::server::ADMIN_TOKEN;
use conformance::{Problem, Result, Server};

/// Starts that are timed. The fastest counts, because slower ones measure other work of the machine.
const STARTS: usize = 5;

/// Enables tokens for admission webhooks.
const TOKENS: &str = "--feature-gates=APIServerWebhookAuthenticationToken=true";

fn main() -> ExitCode {
    // One thread, so that the client leaves the other processors to the server.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome =
        runtime.map_err(|e| Problem::at("the runtime", e)).and_then(|runtime| runtime.block_on(run()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let time = Duration::from_secs(number("LOAD_SECONDS").unwrap_or(4));
    let only = env::var("LOAD_ONLY").unwrap_or_default();
    if only.is_empty() || only == "requests" {
        let own = portcullis(time).await?;
        let reference = match reference_server(time)? {
            None => None,
            Some(measured_server) => Some(load::run(&measured_server).await?),
        };
        load::print(&own, reference.as_ref());
    }
    if only.is_empty() || only == "authorization" {
        let most = number("LOAD_MOST").unwrap_or(u64::MAX);
        let server = Server::serve(&[]).await?;
        let mut own = load::authorization::bindings(&measured_server(&server, None, time)?, most).await?;
        drop(server);
        own.extend(load::authorization::chains(time).await?);
        let reference = match reference_server(time)? {
            None => None,
            Some(measured_server) => Some(load::authorization::bindings(&measured_server, most).await?),
        };
        load::print(&own, reference.as_ref());
    }
    if only == "policies" {
        // Otherwise these are part of the requests and are measured on the reference too.
        let server = Server::serve(&[]).await?;
        load::print(&load::registered(&measured_server(&server, None, time)?).await?, None);
    }
    if only.is_empty() || only == "policies" {
        load::print(&load::policies::run(time).await?, None);
    }
    if only.is_empty() || only == "crds" {
        load::print(&load::crds().await?, None);
    }
    if only.is_empty() || only == "fairness" {
        load::print(&load::fairness(time).await?, None);
    }
    if only.is_empty() || only == "overhead" {
        load::print(&load::overhead(time).await?, None);
    }
    if only.is_empty() || only == "etcd" {
        let servers = env::var("LOAD_ETCD_SERVERS").ok();
        if let Some(own) = load::stores(time, servers.as_deref()).await? {
            let reference = match reference_server(time)? {
                Some(server) if servers.is_some() => Some(load::reference_on_etcd(&server).await?),
                _ => None,
            };
            load::print(&own, reference.as_ref());
            load::print_store_targets(&own, reference.as_ref());
        }
    }
    Ok(())
}

async fn portcullis(time: Duration) -> Result<Figures> {
    let mut quickest: Option<Duration> = None;
    for _ in 0..STARTS {
        let took = Server::up().await?.took;
        quickest = Some(quickest.map_or(took, |quickest| quickest.min(took)));
    }
    let server = Server::serve(&[]).await?;
    let mut figures = load::run(&measured_server(&server, quickest, time)?).await?;
    // A server for each measurement, so that it does not find objects of the other.
    for (name, flags) in [("dry run, one webhook /s", [].as_slice()), ("the same with tokens /s", &[TOKENS])]
    {
        let server = Server::serve(flags).await?;
        figures.push((name, Some(load::webhook_rate(&measured_server(&server, None, time)?).await?)));
    }
    Ok(figures)
}

fn measured_server(server: &Server, start: Option<Duration>, time: Duration) -> Result<MeasuredServer> {
    Ok(MeasuredServer {
        url: server.url.clone(),
        tls: tls(Trust::Anything, None)?,
        token: Some(ADMIN_TOKEN.to_owned()),
        pids: vec![server.pid()],
        start,
        time,
    })
}

fn reference_server(time: Duration) -> Result<Option<MeasuredServer>> {
    let Ok(url) = env::var("REFERENCE_URL") else { return Ok(None) };
    let pids = env::var("REFERENCE_PIDS").unwrap_or_default();
    Ok(Some(MeasuredServer {
        url,
        tls: tls(Trust::Anything, None)?,
        token: Some(env::var("REFERENCE_TOKEN").unwrap_or_else(|_| ADMIN_TOKEN.to_owned())),
        pids: pids.split(',').filter_map(|pid| pid.trim().parse().ok()).collect(),
        start: number("REFERENCE_START_MS").map(Duration::from_millis),
        time,
    }))
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}
