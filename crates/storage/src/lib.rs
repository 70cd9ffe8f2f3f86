//! The revisioned key space: trait, memory, embedded, watch.
