//! Selector.
