use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use runtime::MetricRegistry;

use super::{
    CLOSE_GRACEFULLY, CLOSE_NOW, ClientAddress, ConnectionMetrics, Connections, LogLimit, OpenConnection,
    STAY_OPEN,
};
use crate::accept::ConnectionLimits;

fn connections(limits: ConnectionLimits) -> Arc<Connections> {
    Connections::new(limits, ConnectionMetrics::new(&MetricRegistry::new()).unwrap())
}

async fn open(connections: &Arc<Connections>, address: &str) -> Option<OpenConnection> {
    let permit = connections.room().await.unwrap();
    let open = connections.open(address.parse().unwrap(), permit)?;
    connections.handshake_ended(&open.connection());
    Some(open)
}

fn level(open: &OpenConnection) -> u8 {
    open.connection.close.load(Ordering::Relaxed)
}

#[tokio::test]
async fn the_oldest_idle_connection_of_the_address_with_the_most_is_closed() {
    let connections = connections(ConnectionLimits { connections: 10, ..ConnectionLimits::default() });
    let other = open(&connections, "10.0.0.2").await.unwrap();
    let mut greedy = Vec::new();
    for number in 0..7 {
        let open = open(&connections, "10.0.0.1").await.unwrap();
        open.connection.last_busy.store(100 + number, Ordering::Relaxed);
        greedy.push(open);
    }
    let in_use = greedy[0].connection().begin();
    assert!(greedy.iter().all(|open| level(open) == STAY_OPEN), "eight of ten is not above the mark yet");
    let _ninth = open(&connections, "10.0.0.3").await.unwrap();
    assert_eq!(level(&greedy[0]), STAY_OPEN, "a request is in flight");
    assert_eq!(level(&greedy[1]), CLOSE_GRACEFULLY);
    assert!(greedy.iter().skip(2).all(|open| level(open) == STAY_OPEN));
    assert_eq!(level(&other), STAY_OPEN);
    drop(in_use);
    assert!(greedy[0].connection().is_idle());
}

#[tokio::test]
async fn a_nearly_full_server_closes_idle_connections_at_once_and_reuses_their_slots() {
    let connections = connections(ConnectionLimits { connections: 4, ..ConnectionLimits::default() });
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(open(&connections, "10.0.0.1").await.unwrap());
    }
    let waiting = tokio::spawn({
        let connections = Arc::clone(&connections);
        async move { connections.room().await.is_some() }
    });
    let mut closing = None;
    while closing.is_none() {
        tokio::task::yield_now().await;
        closing = all.iter().position(|open| level(open) == CLOSE_NOW);
    }
    drop(all.remove(closing.unwrap()));
    assert!(waiting.await.unwrap());
}

#[tokio::test]
async fn handshakes_in_progress_are_bounded() {
    let limits = ConnectionLimits { connections: 100, handshakes: 16, ..ConnectionLimits::default() };
    let connections = connections(limits);
    let mut all = Vec::new();
    for _ in 0..17 {
        let permit = connections.room().await.unwrap();
        all.push(connections.open("10.0.0.1".parse().unwrap(), permit).unwrap());
    }
    let closing: Vec<usize> = (0..17).filter(|number| level(&all[*number]) == CLOSE_NOW).collect();
    assert_eq!(closing, [0, 1, 2], "the oldest, a few at a time");
    assert_eq!(connections.handshakes.load(Ordering::Relaxed), 14);
    drop(all);
    assert_eq!(connections.handshakes.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_address_may_have_a_fixed_limit() {
    let limits = ConnectionLimits { connections_per_address: 1, ..ConnectionLimits::default() };
    let connections = connections(limits);
    let first = open(&connections, "10.0.0.1").await;
    assert!(first.is_some());
    assert!(open(&connections, "10.0.0.1").await.is_none());
    assert!(open(&connections, "::ffff:10.0.0.1").await.is_none(), "the same address");
    assert!(open(&connections, "10.0.0.2").await.is_some());
    drop(first);
    assert!(open(&connections, "10.0.0.1").await.is_some());
}

#[test]
fn ipv6_addresses_count_by_their_network() {
    let of = |text: &str| ClientAddress::of(text.parse::<IpAddr>().unwrap());
    assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
}

#[test]
fn a_log_line_is_let_through_every_ten_seconds() {
    let log = LogLimit::default();
    let now = Instant::now();
    assert_eq!(log.due_at(now), Some(0));
    assert_eq!(log.due_at(now + Duration::from_secs(1)), None);
    assert_eq!(log.due_at(now + Duration::from_secs(9)), None);
    assert_eq!(log.due_at(now + Duration::from_secs(10)), Some(2));
}
