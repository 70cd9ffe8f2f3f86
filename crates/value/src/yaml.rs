//! The strict YAML reader.
