//! Runs deeply recursive work on a thread with a large stack.
//!
//! Expressions nest up to 250 levels and every tree walk is recursive. Work that may recurse deeply runs on a thread
//! of its own, so that callers need no large stack.

use value::steps;

use crate::lib::pattern::allowance;

/// Stack size in bytes; the system commits only the pages that are used.
const STACK: usize = 256 << 20;

/// Runs `work`; on a thread with a large stack if `deep`.
pub(crate) fn with_deep_stack<R: Send>(deep: bool, work: impl FnOnce() -> R + Send) -> R {
    if !deep {
        return work();
    }
    // The closure stays in an `Option`, so that it can still run here if no thread can be started.
    let mut work = Some(work);
    let mut result = None;
    // Pattern allowances are thread-local: hand them to the thread and take them back.
    let mut allowances = allowance::swap(Vec::new());
    // So is the budget of a request, which also ends this work.
    let budget = steps::current_budget();
    std::thread::scope(|scope| {
        let (work, result, allowances, budget) = (&mut work, &mut result, &mut allowances, &budget);
        let started = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || {
            allowance::swap(std::mem::take(allowances));
            *result = work.take().map(|work| steps::within(budget, work));
            *allowances = allowance::swap(Vec::new());
        });
        if let Ok(thread) = started
            && let Err(panic) = thread.join()
        {
            std::panic::resume_unwind(panic);
        }
    });
    allowance::swap(allowances);
    match (result, work) {
        (Some(Ok(result)), _) => result,
        (Some(Err(ended)), _) => steps::interrupt(ended),
        (None, Some(work)) => work(),
        #[expect(clippy::unreachable, reason = "the work is either done or still here")]
        (None, None) => unreachable!(),
    }
}
