//! Per-thread caches of recent callers, users and flows: most requests come from few users.

use std::cell::RefCell;

use authn::{Caller, CallerHandle, User};
use sha2::{Digest as _, Sha256};
use value::Str;

/// Number of cached callers, users and flows, of each, per thread.
const SLOTS: usize = 64;
/// Longer names, and users with more groups, are not cached.
const MAX_NAME: usize = 256;
const MAX_GROUPS: usize = 16;

/// A direct-mapped cache: each slot holds the last value with its hash.
type Slots<T> = RefCell<[Option<T>; SLOTS]>;

thread_local! {
    static CALLERS: Slots<CachedCaller> = const { RefCell::new([const { None }; SLOTS]) };
    static USERS: Slots<CachedUser> = const { RefCell::new([const { None }; SLOTS]) };
    static FLOWS: Slots<CachedFlow> = const { RefCell::new([const { None }; SLOTS]) };
}

/// A short hash of the end of a name, because names often have a common prefix.
fn slot(name: &str) -> usize {
    let add = |hash: usize, byte: &u8| hash.wrapping_mul(31).wrapping_add(usize::from(*byte));
    name.as_bytes().iter().rev().take(16).fold(name.len(), add) % SLOTS
}

/// The class of all requests of a caller for resources, and of all others, where it is the same for all.
type ClassesOfAll = [Option<usize>; 2];

struct CachedCaller {
    /// The number of the classifier that the classes belong to.
    classifier: u64,
    caller: CallerHandle,
    classes: ClassesOfAll,
}

/// The cached classes of a caller; `find` computes them on a cache miss.
pub(crate) fn classes_of_all(
    classifier: u64,
    caller: &Caller,
    find: impl FnOnce() -> ClassesOfAll,
) -> ClassesOfAll {
    CALLERS.with_borrow_mut(|callers| {
        let Some(cached) = callers.get_mut(caller.address() / 64 % SLOTS) else { return find() };
        if let Some(cached) = cached
            && cached.classifier == classifier
            && cached.caller.is_of(caller)
        {
            return cached.classes;
        }
        let classes = find();
        *cached = Some(CachedCaller { classifier, caller: caller.handle(), classes });
        classes
    })
}

/// The rules of flow schemas that match a user by name or group.
struct CachedUser {
    /// The number of the classifier that the rules belong to.
    classifier: u64,
    name: Str,
    groups: Vec<Str>,
    rules: Vec<RuleOfClass>,
}

/// Index of a class, and of a rule in its flow schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleOfClass {
    pub(crate) class: usize,
    pub(crate) rule: usize,
}

/// Calls `choose` with the rules that match a user in a classifier; `find` computes them on a cache miss.
pub(crate) fn with_rules<R>(
    classifier: u64,
    user: &User,
    find: impl FnOnce() -> Vec<RuleOfClass>,
    choose: impl FnOnce(&[RuleOfClass]) -> R,
) -> R {
    let is_short = |name: &Str| name.len() <= MAX_NAME;
    USERS.with_borrow_mut(|users| {
        let Some(cached) = users.get_mut(slot(&user.name)) else { return choose(&find()) };
        if let Some(cached) = cached
            && cached.classifier == classifier
            && cached.name == user.name
            && cached.groups == user.groups
        {
            return choose(&cached.rules);
        }
        let rules = find();
        if !is_short(&user.name) || user.groups.len() > MAX_GROUPS || !user.groups.iter().all(is_short) {
            return choose(&rules);
        }
        let (name, groups) = (user.name.clone(), user.groups.clone());
        choose(&cached.insert(CachedUser { classifier, name, groups, rules }).rules)
    })
}

struct CachedFlow {
    schema: Str,
    distinguisher: Str,
    hash: u64,
}

/// The hash of a flow; all servers of a cluster compute equal values.
pub(crate) fn flow_hash(schema: &str, distinguisher: &str) -> u64 {
    if distinguisher.len() > MAX_NAME {
        return sha256(schema, distinguisher);
    }
    FLOWS.with_borrow_mut(|flows| {
        let at = (slot(distinguisher) + schema.len()) % SLOTS;
        let Some(cached) = flows.get_mut(at) else { return sha256(schema, distinguisher) };
        if let Some(cached) = cached
            && cached.distinguisher == distinguisher
            && cached.schema == schema
        {
            return cached.hash;
        }
        let hash = sha256(schema, distinguisher);
        *cached = Some(CachedFlow { schema: schema.into(), distinguisher: distinguisher.into(), hash });
        hash
    })
}

fn sha256(schema: &str, distinguisher: &str) -> u64 {
    let digest = Sha256::new().chain_update(schema).chain_update([0]).chain_update(distinguisher).finalize();
    digest.iter().take(8).rev().fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::{flow_hash, sha256};

    #[test]
    fn flows_hash_to_the_first_eight_bytes_of_a_sha256() {
        // The SHA-256 of "a", a zero byte and "b", read as little-endian.
        assert_eq!(flow_hash("a", "b"), 0xd3b1_bc1b_ae71_b259);
        assert_ne!(flow_hash("a", "b"), flow_hash("ab", ""));
    }

    #[test]
    fn flows_that_share_a_slot_keep_their_own_hashes() {
        for _ in 0..2 {
            for number in 0..200 {
                let user = format!("user-{number}");
                for schema in ["a", "b"] {
                    assert_eq!(flow_hash(schema, &user), sha256(schema, &user));
                }
            }
        }
    }
}
