use std::net::IpAddr;
use std::sync::Arc;

use authn::User;
use prometheus::TextEncoder;
use runtime::MetricRegistry;

use super::{CHARGED_FROM, PIECE, Payer, UnsentPieces};
use crate::byte_budget::{BudgetAccount, ByteBudget};

/// Bytes that a user alone may charge, as [`ByteBudget`] documents it.
const SHARE: usize = 128 << 20;

fn alice() -> (Arc<ByteBudget>, MetricRegistry, Payer) {
    let registry = MetricRegistry::new();
    let budget = ByteBudget::for_answers(&registry).unwrap();
    let account = BudgetAccount::of(&User::named("alice"), IpAddr::from([10, 0, 0, 1]));
    let payer = Payer::new(&budget, account);
    (budget, registry, payer)
}

fn charged(registry: &MetricRegistry) -> usize {
    let page = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix("apiserver_unsent_response_bytes "));
    line.unwrap().parse().unwrap()
}

#[test]
fn bytes_of_a_response_are_charged_before_they_are_written_and_until_they_are_sent() {
    let (_budget, registry, payer) = alice();
    let mut out = UnsentPieces::new(Some(payer));
    out.push(&vec![b'a'; CHARGED_FROM - 1]).unwrap();
    assert_eq!(charged(&registry), 0, "a small response is not charged");
    out.push(b"b").unwrap();
    assert_eq!(charged(&registry), PIECE);
    out.push(&vec![b'c'; 2 * PIECE]).unwrap();
    assert_eq!(charged(&registry), 3 * PIECE);
    let work = out.charge_work(1000).unwrap();
    assert_eq!(charged(&registry), 3 * PIECE + 1000);
    drop(work);
    let mut pieces = out.finish().unwrap();
    assert_eq!(charged(&registry), 2 * PIECE + CHARGED_FROM, "the last piece is charged for its length");
    assert!(pieces.iter().all(|piece| piece.len() <= PIECE));
    let whole: Vec<u8> = pieces.iter().flatten().copied().collect();
    let expected = [vec![b'a'; CHARGED_FROM - 1], vec![b'b'], vec![b'c'; 2 * PIECE]].concat();
    assert!(whole == expected);
    drop(pieces.pop_front());
    assert_eq!(charged(&registry), PIECE + CHARGED_FROM);
    drop(pieces);
    assert_eq!(charged(&registry), 0);
}

#[test]
fn a_response_that_exceeds_the_share_of_its_user_is_refused_while_it_is_built_and_holds_nothing() {
    let (_budget, registry, payer) = alice();
    let mut out = UnsentPieces::new(Some(payer.clone()));
    let piece = vec![b'a'; PIECE];
    let written = std::iter::from_fn(|| out.push(&piece).ok()).count();
    assert_eq!(written * PIECE, SHARE);
    assert!(out.is_refused());
    assert_eq!(charged(&registry), 0);
    let refused = out.push(b"more").unwrap_err();
    assert_eq!((refused.code(), refused.details().unwrap().retry_after_seconds), (429, 1));
    assert_eq!(out.charge_work(1).unwrap_err().code(), 429);
    assert_eq!(out.finish().unwrap_err().code(), 429);
    // Memory to compute a response is limited in the same way.
    let mut other = UnsentPieces::new(Some(payer));
    assert!(other.charge_work(SHARE as u64 + 1).is_err() && other.is_refused());
}

#[test]
fn responses_without_a_payer_are_not_charged() {
    let mut out = UnsentPieces::new(None);
    assert!(out.charge_work(u64::MAX).unwrap().is_none());
    out.push(&vec![b'a'; 3 * PIECE + 1]).unwrap();
    assert_eq!(out.finish().unwrap().iter().map(bytes::Bytes::len).sum::<usize>(), 3 * PIECE + 1);
}
