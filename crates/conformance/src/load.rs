//! The load run.
