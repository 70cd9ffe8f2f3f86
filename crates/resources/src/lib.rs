//! What each kind is: table, schemas, defaults, validation, patches, printing.
