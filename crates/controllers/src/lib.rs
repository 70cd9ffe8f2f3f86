//! Reconcile loops that make a lone server usable.
