//! One training run from one resolved run file: model, optimizer, data, checkpoints, logs.
//!
//! The crate reads `run.yaml` and writes the files of docs/files.md; it knows nothing of profiles, claims or
//! verdicts. All arithmetic is `kernels`'; what is here decides shapes, order and bookkeeping. Start reading at `session`
//! (a run's life), then `trainer_state` (one step), `model` (forward and backward), `choices` (what a recipe changes).

pub mod batches;
pub mod checkpoint;
pub mod choices;
pub mod data;
pub mod device;
pub mod device_test;
pub mod error;
pub mod export;
pub mod gradients;
pub mod identity;
pub mod interrupt;
pub mod measure;
pub mod memory;
pub mod metrics;
pub mod mllog;
pub mod model;
pub mod model_export;
pub mod optimizer;
pub mod parameters;
mod quantisation_error;
mod quantised_once;
pub mod ranks;
pub mod readings;
mod resumption;
pub mod session;
pub mod shards;
pub mod streams;
pub mod tensorboard;
pub mod tensors;
pub mod timing;
pub mod tokenizer;
pub mod trainer_state;
mod whole_files;
