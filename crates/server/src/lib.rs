//! TLS, HTTP, the request pipeline, handlers, metrics, configuration.
