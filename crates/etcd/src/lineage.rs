//! Notices that etcd's data is not the continuation of what this server has loaded: a cluster that was restored from a backup, or another
//! cluster at the same address.
//!
//! A linearizable read, or a transaction, sees every change that was committed before it began. So while a cluster has its data, the
//! revision of its answer is at least the one that memory had before, and the cluster has the same id. Only the answers of kine to refused
//! transactions can be older, so the backend confirms what they show with a read.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::messages::ResponseHeader;

/// The cluster whose data is in memory.
#[derive(Debug)]
pub(crate) struct Lineage {
    known: Mutex<KnownCluster>,
    /// The highest revision that a reader waits for. Never higher than that of the cluster in memory.
    wanted: watch::Sender<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct KnownCluster {
    /// Counts the times that everything was loaded.
    loads: u64,
    cluster_id: u64,
    /// The highest term of an election that an answer showed.
    raft_term: u64,
}

/// The least that an answer shows if the cluster still has the data in memory. Taken before the request is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedLineage {
    /// The value of [`KnownCluster::loads`] at that time.
    loads: u64,
    revision: u64,
}

/// The result of [`Lineage::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Continuity {
    /// The answer belongs to the data in memory.
    Continued,
    /// The data was replaced, for this reason. Everything must be loaded again.
    Replaced(String),
    /// Everything was loaded again after the request was sent.
    Reloaded,
}

impl Lineage {
    pub(crate) fn new() -> Lineage {
        Lineage { known: Mutex::default(), wanted: watch::Sender::new(0) }
    }

    /// Takes what an answer must show; `fed` returns the revision that memory has. The request must be sent later.
    pub(crate) fn expected(&self, fed: impl FnOnce() -> u64) -> ExpectedLineage {
        let known = self.lock();
        ExpectedLineage { loads: known.loads, revision: fed().max(*self.wanted.borrow()) }
    }

    /// Checks the answer of a linearizable read or of a transaction. The watch must reach its revision, and asks for progress until it has.
    pub(crate) fn check(&self, expected: ExpectedLineage, header: &ResponseHeader) -> Continuity {
        let mut known = self.lock();
        if known.loads != expected.loads {
            return Continuity::Reloaded;
        }
        if header.cluster_id != known.cluster_id {
            return Continuity::Replaced(format!(
                "the cluster has the id {:x} instead of {:x}",
                header.cluster_id, known.cluster_id
            ));
        }
        let revision = u64::try_from(header.revision).unwrap_or_default();
        if revision < expected.revision {
            return Continuity::Replaced(format!(
                "its newest revision is {revision}, and this server has {}",
                expected.revision
            ));
        }
        known.raft_term = known.raft_term.max(header.raft_term);
        self.wanted.send_if_modified(|wanted| {
            let is_higher = revision > *wanted;
            *wanted = revision.max(*wanted);
            is_higher
        });
        Continuity::Continued
    }

    /// True if an answer shows a lower raft term than an earlier one. Either the cluster was restored from a backup, or the earlier answer
    /// came from a member that had just begun an election; then the terms of later answers soon reach it.
    pub(crate) fn has_older_term(&self, header: &ResponseHeader) -> bool {
        header.raft_term < self.lock().raft_term
    }

    /// True for an event or a notification of another cluster.
    pub(crate) fn is_other_cluster(&self, header: &ResponseHeader) -> bool {
        header.cluster_id != self.lock().cluster_id
    }

    /// Records that `load` fills memory with the data of the cluster that sent `header`.
    pub(crate) fn load(&self, header: &ResponseHeader, load: impl FnOnce()) {
        let mut known = self.lock();
        let revision = u64::try_from(header.revision).unwrap_or_default();
        // Readers may wait for revisions of replaced data: those must not make the watch count as stalled.
        self.wanted.send_if_modified(|wanted| {
            *wanted = revision.min(*wanted);
            false
        });
        *known = KnownCluster {
            loads: known.loads + 1,
            cluster_id: header.cluster_id,
            raft_term: header.raft_term,
        };
        load();
    }

    /// The highest revision that a reader waits for.
    pub(crate) fn wanted(&self) -> watch::Receiver<u64> {
        self.wanted.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, KnownCluster> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Continuity, Lineage};
    use crate::messages::ResponseHeader;

    fn header(cluster_id: u64, revision: i64, raft_term: u64) -> ResponseHeader {
        ResponseHeader { cluster_id, revision, raft_term }
    }

    fn loaded() -> Lineage {
        let lineage = Lineage::new();
        lineage.load(&header(7, 100, 4), || {});
        lineage
    }

    #[test]
    fn answers_of_the_same_cluster_at_the_same_or_a_later_revision_continue_the_data() {
        let lineage = loaded();
        for (fed, revision) in [(100, 100), (100, 105), (103, 105), (105, 105)] {
            let expected = lineage.expected(|| fed);
            assert_eq!(lineage.check(expected, &header(7, revision, 4)), Continuity::Continued);
        }
        assert_eq!(*lineage.wanted().borrow(), 105);
    }

    #[test]
    fn a_lower_revision_than_memory_or_an_earlier_answer_has_means_that_the_data_was_replaced() {
        let lineage = loaded();
        let replaced = |answer| matches!(answer, Continuity::Replaced(_));
        assert!(replaced(lineage.check(lineage.expected(|| 100), &header(7, 99, 4))));
        assert_eq!(lineage.check(lineage.expected(|| 100), &header(7, 110, 4)), Continuity::Continued);
        assert!(replaced(lineage.check(lineage.expected(|| 100), &header(7, 109, 4))));
        // An answer to an earlier question may be older.
        let earlier = lineage.expected(|| 110);
        assert_eq!(lineage.check(lineage.expected(|| 110), &header(7, 120, 4)), Continuity::Continued);
        assert_eq!(lineage.check(earlier, &header(7, 115, 4)), Continuity::Continued);
    }

    #[test]
    fn another_cluster_id_means_that_the_data_was_replaced() {
        let lineage = loaded();
        let answer = lineage.check(lineage.expected(|| 100), &header(8, 500, 4));
        assert_eq!(answer, Continuity::Replaced("the cluster has the id 8 instead of 7".to_owned()));
        assert!(
            lineage.is_other_cluster(&header(8, 100, 4)) && !lineage.is_other_cluster(&header(7, 100, 4))
        );
        assert_eq!(*lineage.wanted().borrow(), 0, "nobody waits for a revision of another cluster");
    }

    #[test]
    fn answers_to_questions_from_before_a_load_decide_nothing() {
        let lineage = loaded();
        assert_eq!(lineage.check(lineage.expected(|| 100), &header(7, 130, 4)), Continuity::Continued);
        let earlier = lineage.expected(|| 130);
        lineage.load(&header(7, 50, 2), || {});
        assert_eq!(*lineage.wanted().borrow(), 50);
        assert_eq!(lineage.check(earlier, &header(7, 130, 4)), Continuity::Reloaded);
        assert_eq!(lineage.check(lineage.expected(|| 50), &header(7, 51, 2)), Continuity::Continued);
    }

    #[test]
    fn a_cluster_that_held_fewer_elections_than_before_is_suspicious() {
        let lineage = loaded();
        assert!(!lineage.has_older_term(&header(7, 100, 4)) && lineage.has_older_term(&header(7, 100, 3)));
        assert_eq!(lineage.check(lineage.expected(|| 100), &header(7, 100, 6)), Continuity::Continued);
        assert!(lineage.has_older_term(&header(7, 100, 5)) && !lineage.has_older_term(&header(7, 100, 6)));
    }
}
