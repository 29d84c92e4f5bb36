//! From public repositories at pinned commits to documents: the rule that manifests/datasets/webdocs.yaml states in words, and the git commands
//! that bring what it needs.
//!
//! Everything is done on bytes, and nothing but the manifest decides: the same commits give the same bytes on every machine. Step numbers in
//! comments are the manifest's. Whoever calls this makes folders whole, compares hashes and tells people what is going on.

mod bytes;
pub mod corpus;
mod dedup;
pub mod git;
mod lines;
mod modes;
pub mod rule;
pub mod source;
mod spill;
