//! Room for deep recursion.
//!
//! Expressions nest up to 250 levels, and everything that walks one recurses. What is deeper than usual runs on a thread of
//! its own with a stack that is large enough, so that callers need none.

use crate::lib::pattern::allowance;

/// The stack for deep work; only what is used of it takes memory.
const STACK: usize = 256 << 20;

/// Runs `work`, with a large stack if it may go deep.
pub(crate) fn with_deep_stack<R: Send>(deep: bool, work: impl FnOnce() -> R + Send) -> R {
    if !deep {
        return work();
    }
    // The work is handed over through a cell, so that it is still here if no thread could be started.
    let mut work = Some(work);
    let mut result = None;
    // What may be compiled belongs to the thread.
    let mut allowances = allowance::swap(Vec::new());
    std::thread::scope(|scope| {
        let (work, result, allowances) = (&mut work, &mut result, &mut allowances);
        let started = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || {
            allowance::swap(std::mem::take(allowances));
            *result = work.take().map(|work| work());
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
        (Some(result), _) => result,
        (None, Some(work)) => work(),
        #[expect(clippy::unreachable, reason = "the work is either done or still here")]
        (None, None) => unreachable!(),
    }
}
