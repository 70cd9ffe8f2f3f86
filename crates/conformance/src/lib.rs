//! Harness and black-box suites against a running server.
