//! All tests that need no process of their own, as one program: linking is most of what a small test program costs, and one with many tests
//! keeps every core busy to its end.

mod accumulation;
mod bad_input;
mod checkpoints;
mod commands;
mod common;
mod data;
mod data_tokenizer;
mod defects;
mod export;
mod fuzz_corpus;
mod gradients;
mod hip;
mod hip_kernel_time;
mod hip_native;
mod hip_ranks;
mod identity;
mod mllog;
mod ranks;
mod readings;
mod recipes;
mod resume;
mod tensorboard;
mod transport;
