//! The object tree everything reads, with strict JSON and YAML readers.
