//! The store's tests: one suite that every backend runs, and what only the embedded one must prove.

mod crashes;
mod disk;
mod embedded;
mod faults;
mod fixture;
mod suite;
