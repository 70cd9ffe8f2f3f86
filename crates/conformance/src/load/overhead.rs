//! The CPU time that API Priority and Fairness adds to a GET while no request has to wait.
//!
//! Two servers, with and without it, are driven in turns, so that other work of the machine disturbs both alike. What counts is the median
//! of the differences between neighboring turns.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::json;

use super::measure::Figures;
use super::requests::{LoadConnections, LoadLimit};
use crate::client::{Trust, tls};
use crate::server::{ADMIN_TOKEN, Server, cpu_time};
use crate::{Problem, Result};

/// Turns of each server. An odd number, so that the median is one of them.
const ROUNDS: u32 = 25;
/// Each turn takes this part of the time of a rate measurement.
const TURN_PART: u32 = 4;

const OFF: &str = "--enable-priority-and-fairness=false";
const MAP: &str = "/api/v1/namespaces/default/configmaps/load";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

struct OverheadFigureNames {
    token: &'static str,
    /// Without API Priority and Fairness, with it, and the median, lower and upper quartile of the overhead in percent.
    names: [&'static str; 5],
}

/// A user of a limited level, and one of the exempt level.
const USERS: [OverheadFigureNames; 2] = [
    OverheadFigureNames {
        token: "alicetoken",
        names: [
            "get, user, APF off, CPU µs",
            "get, user, APF on, CPU µs",
            "get, user, overhead %",
            "  lower quartile %",
            "  upper quartile %",
        ],
    },
    OverheadFigureNames {
        token: ADMIN_TOKEN,
        names: [
            "get, admin, APF off, CPU µs",
            "get, admin, APF on, CPU µs",
            "get, admin, overhead %",
            "  lower quartile %",
            "  upper quartile %",
        ],
    },
];

/// Measures the built binary with and without API Priority and Fairness.
pub async fn overhead(time: Duration) -> Result<Figures> {
    let (off, on) = (Server::serve(&[OFF]).await?, Server::serve(&[]).await?);
    prepare(&off).await?;
    prepare(&on).await?;
    let mut figures = Figures::new();
    for OverheadFigureNames { token, names } in &USERS {
        let off = DrivenServer::connect(&off, token).await?;
        let on = DrivenServer::connect(&on, token).await?;
        let (mut without, mut with, mut percent) = (Vec::new(), Vec::new(), Vec::new());
        // The first turns fill caches.
        off.turn(time / TURN_PART).await?;
        on.turn(time / TURN_PART).await?;
        for round in 0..ROUNDS {
            // The order alternates, so that a machine that becomes slower or faster favors none.
            let (a, b) = if round % 2 == 0 {
                let a = off.turn(time / TURN_PART).await?;
                (a, on.turn(time / TURN_PART).await?)
            } else {
                let b = on.turn(time / TURN_PART).await?;
                (off.turn(time / TURN_PART).await?, b)
            };
            without.push(a);
            with.push(b);
            percent.push((b / a - 1.0) * 100.0);
        }
        let values = [
            quantile(&mut without, 2),
            quantile(&mut with, 2),
            quantile(&mut percent, 2),
            quantile(&mut percent, 1),
            quantile(&mut percent, 3),
        ];
        figures.extend(names.iter().copied().zip(values));
    }
    Ok(figures)
}

/// Creates the object, and allows every user to read it.
async fn prepare(server: &Server) -> Result<()> {
    let admin =
        LoadConnections::connect(&server.url, &tls(Trust::Anything, None)?, Some(ADMIN_TOKEN)).await?;
    let post = async |path: &str, object: serde_json::Value| {
        admin.once(&Method::POST, path, Bytes::from(object.to_string())).await.map(drop)
    };
    let map = json!({"metadata": {"name": "load"}, "data": {"key": "value"}});
    post("/api/v1/namespaces/default/configmaps", map).await?;
    let role = json!({"metadata": {"name": "maps"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]});
    post(&format!("{RBAC}/clusterroles"), role).await?;
    let binding = json!({"metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"kind": "Group", "name": "system:authenticated"}]});
    post(&format!("{RBAC}/clusterrolebindings"), binding).await
}

/// A server with connections of one user.
struct DrivenServer {
    pid: u32,
    connections: LoadConnections,
}

impl DrivenServer {
    async fn connect(server: &Server, token: &str) -> Result<Self> {
        let connections =
            LoadConnections::connect(&server.url, &tls(Trust::Anything, None)?, Some(token)).await?;
        Ok(DrivenServer { pid: server.pid(), connections })
    }

    /// Sends requests for some time. Returns the CPU time of the server per request, in microseconds.
    async fn turn(&self, time: Duration) -> Result<f64> {
        let read = || cpu_time(self.pid).ok_or_else(|| Problem::new("the CPU time of the server is unknown"));
        let before = read()?;
        let get = |_| (Method::GET, MAP.to_owned(), Bytes::new());
        let requests = self.connections.flood(LoadLimit::Time(time), get).await?.requests;
        let used = read()?.saturating_sub(before);
        #[expect(clippy::cast_precision_loss, reason = "an average")]
        let requests = requests.max(1) as f64;
        Ok(used.as_secs_f64() * 1e6 / requests)
    }
}

/// The value below which this number of quarters of the values lie.
fn quantile(values: &mut [f64], quarters: usize) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * quarters / 4).copied()
}
