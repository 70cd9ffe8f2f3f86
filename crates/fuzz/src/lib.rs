//! Mutation-based fuzzing for tests.
//!
//! A [`Corpus`] has valid inputs (seeds) and the tokens of their language; [`Corpus::inputs`] generates broken inputs from them.
//! [`run`] passes them to a check for ten seconds, or for `PORTCULLIS_ROUNDS` rounds of [`ROUND`] inputs. A check fails by returning an
//! error, by panicking or by using more than [`MAX_CPU_TIME`] for one input; the smallest list of mutations that still fails is
//! printed, and `PORTCULLIS_SEED` chooses other inputs. [`Dice`] makes reproducible choices for other tests.
//!
//! ```
//! let corpus = fuzz::Corpus::new(["[1,2]", "true"], &["[", "]", ","]);
//! fuzz::run_rounds(1, &corpus.inputs(), |input| {
//!     let depth = input.iter().filter(|byte| **byte == b'[').count();
//!     if depth <= input.len() { Ok(()) } else { Err("impossible".to_owned()) }
//! });
//! ```

mod corpus;
mod dice;
mod mutate;
mod run;

pub use corpus::{Corpus, Input};
pub use dice::Dice;
pub use run::{MAX_CPU_TIME, ROUND, run, run_rounds};
