//! Holds no code: this package only lists the crates whose text is the dataset `rust-crates`.
