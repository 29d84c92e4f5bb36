//! The rule on small repositories that git makes here, against texts and orders that were written by hand (hashes of names: Python's hashlib).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod corpus;
mod fetch;
mod made;
mod modes;
