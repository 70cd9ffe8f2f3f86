//! May they: the ordered chain of authorizers.
