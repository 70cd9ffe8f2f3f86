//! Mutate, then validate.
