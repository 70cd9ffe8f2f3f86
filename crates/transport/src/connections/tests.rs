use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use runtime::MetricRegistry;

use super::{
    CLOSE_GRACEFULLY, CLOSE_NOW, ClientAddress, ConnectionMetrics, Connections, IdleKind, OpenConnection,
    STAY_OPEN, UNCLAIMED,
};
use crate::accept::ConnectionLimits;

fn connections(limits: ConnectionLimits) -> Arc<Connections> {
    Connections::new(limits, ConnectionMetrics::new(&MetricRegistry::new()).unwrap())
}

/// No connection has long-running requests.
fn none_ended(_: usize) -> Vec<u64> {
    Vec::new()
}

async fn open(connections: &Arc<Connections>, address: &str) -> Option<OpenConnection> {
    let permit = connections.room(&none_ended).await.unwrap();
    let open = connections.open(address.parse().unwrap(), permit)?;
    connections.handshake_ended(&open.connection());
    // It has had a request, so that it may be closed at once.
    drop(open.connection().begin());
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
        async move { connections.room(&none_ended).await.is_some() }
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
async fn long_running_requests_are_ended_only_if_nearly_all_connections_are_busy() {
    let connections = connections(ConnectionLimits { connections: 40, ..ConnectionLimits::default() });
    let wanted = std::sync::Mutex::new(Vec::new());
    let end = |count: usize| {
        let mut wanted = wanted.lock().unwrap();
        wanted.push(count);
        vec![wanted.len() as u64 - 1]
    };
    let (mut all, mut busy) = (Vec::new(), Vec::new());
    for _ in 0..39 {
        let permit = connections.room(&end).await.unwrap();
        let open = connections.open("10.0.0.1".parse().unwrap(), permit).unwrap();
        let request = open.connection().begin();
        request.claim().claim();
        busy.push(request);
        all.push(open);
    }
    assert_eq!(*wanted.lock().unwrap(), [1], "38 of 40 were busy");
    assert_eq!((level(&all[0]), level(&all[1])), (CLOSE_GRACEFULLY, STAY_OPEN));
    let _last = connections.room(&end).await.unwrap();
    assert_eq!(wanted.lock().unwrap().len(), 2, "one is leaving, and 38 stay");
    // A client that does not leave in time is disconnected.
    let now = connections.millis();
    connections.close_ended(now);
    assert_eq!(level(&all[0]), CLOSE_GRACEFULLY);
    connections.close_ended(now + 5_001);
    assert_eq!((level(&all[0]), level(&all[1]), level(&all[2])), (CLOSE_NOW, CLOSE_NOW, STAY_OPEN));
}

#[tokio::test]
async fn requests_without_a_claim_end_no_requests_of_others_and_do_not_protect_their_connections() {
    let connections = connections(ConnectionLimits { connections: 40, ..ConnectionLimits::default() });
    let ended = std::sync::atomic::AtomicUsize::new(0);
    let end = |_: usize| {
        ended.fetch_add(1, Ordering::Relaxed);
        Vec::new()
    };
    let watch = open(&connections, "10.0.0.1").await.unwrap();
    let running = watch.connection().begin();
    running.claim().claim();
    let (mut all, mut unread) = (Vec::new(), Vec::new());
    for _ in 0..39 {
        let permit = connections.room(&end).await.unwrap();
        let open = connections.open("10.0.0.1".parse().unwrap(), permit).unwrap();
        connections.handshake_ended(&open.connection());
        unread.push(open.connection().begin());
        all.push(open);
    }
    assert_eq!(ended.load(Ordering::Relaxed), 0);
    let now = connections.millis();
    connections.close_idle(IdleKind::Idle, CLOSE_NOW, now);
    assert!(all.iter().all(|open| level(open) == STAY_OPEN), "they may still be authenticated");
    connections.close_idle(IdleKind::Idle, CLOSE_NOW, now + UNCLAIMED);
    assert_eq!((level(&watch), level(&all[0]), level(&all[1])), (STAY_OPEN, CLOSE_NOW, STAY_OPEN));
}

#[tokio::test]
async fn new_connections_of_an_address_are_closed_rather_than_used_ones_of_others() {
    let connections = connections(ConnectionLimits { connections: 100, ..ConnectionLimits::default() });
    let other = open(&connections, "10.0.0.2").await.unwrap();
    let connect = async |address: &str| {
        let permit = connections.room(&none_ended).await.unwrap();
        let open = connections.open(address.parse().unwrap(), permit).unwrap();
        connections.handshake_ended(&open.connection());
        open
    };
    let newcomer = connect("10.0.0.3").await;
    let mut flood = Vec::new();
    for _ in 0..70 {
        flood.push(connect("10.0.0.1").await);
    }
    let now = connections.millis();
    for _ in 0..10 {
        connections.close_idle(IdleKind::Idle, CLOSE_NOW, now);
    }
    let closed: Vec<bool> = flood.iter().map(|open| level(open) == CLOSE_NOW).collect();
    assert_eq!(closed, [[true; 30].as_slice(), &[false; 40]].concat(), "the oldest, three at a time");
    assert_eq!((level(&other), level(&newcomer)), (STAY_OPEN, STAY_OPEN));
    // Of connections of one address, the used ones are closed first.
    let used = open(&connections, "10.0.0.1").await.unwrap();
    for _ in 0..7 {
        flood.push(connect("10.0.0.1").await);
    }
    connections.close_idle(IdleKind::Idle, CLOSE_NOW, connections.millis());
    assert_eq!(level(&used), CLOSE_NOW);
}

#[tokio::test]
async fn a_connection_has_time_for_its_first_request() {
    let connections = connections(ConnectionLimits { connections: 40, ..ConnectionLimits::default() });
    let ended = std::sync::atomic::AtomicUsize::new(0);
    let end = |_: usize| {
        ended.fetch_add(1, Ordering::Relaxed);
        Vec::new()
    };
    let mut all = Vec::new();
    for _ in 0..40 {
        let permit = connections.room(&end).await.unwrap();
        let open = connections.open("10.0.0.1".parse().unwrap(), permit).unwrap();
        connections.handshake_ended(&open.connection());
        all.push(open);
    }
    assert!(all.iter().all(|open| level(open) == STAY_OPEN));
    assert_eq!(ended.load(Ordering::Relaxed), 0, "idle connections end no requests");
    let full = connections.room(&end);
    // Without a request for a second, it is idle.
    let room = async {
        while all.iter().all(|open| level(open) == STAY_OPEN) {
            tokio::task::yield_now().await;
        }
        let closing = all.iter().position(|open| level(open) != STAY_OPEN).unwrap();
        drop(all.remove(closing));
    };
    let (room, ()) = tokio::join!(full, room);
    assert!(room.is_some());
}

#[tokio::test]
async fn handshakes_in_progress_are_bounded() {
    let limits = ConnectionLimits { connections: 100, handshakes: 16, ..ConnectionLimits::default() };
    let connections = connections(limits);
    let mut all = Vec::new();
    for _ in 0..17 {
        let permit = connections.room(&none_ended).await.unwrap();
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
