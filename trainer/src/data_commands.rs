//! The `trainer` subcommands that prepare data: arguments in, library calls, one JSON line out.

use std::path::PathBuf;

use clap::Subcommand;
use trainer::data::{DataError, TokenSummary};
use trainer::error::TrainerError;
use trainer::tokenizer::{self, TokenizerError};

#[derive(Subcommand)]
pub(crate) enum DataCommand {
    /// Learn a byte-level BPE vocabulary; the same text gives the same file
    ///
    /// Example: trainer train-tokenizer --input train.jsonl --vocab-size 1024 --output tokenizer.json
    TrainTokenizer {
        /// Documents: .jsonl with a "text" each, or .txt separated by NUL
        #[arg(long)]
        input: PathBuf,
        /// Entries, the 256 bytes and the separator included
        #[arg(long)]
        vocab_size: usize,
        /// Where to write tokenizer.json
        #[arg(long)]
        output: PathBuf,
    },
    /// Write PREFIX.bin and PREFIX.idx (Megatron's layout), the separator after each document
    Tokenize {
        /// tokenizer.json
        #[arg(long)]
        tokenizer: PathBuf,
        /// Documents: .jsonl or .txt
        #[arg(long)]
        input: PathBuf,
        /// Path of the pair without extension
        #[arg(long)]
        output: PathBuf,
    },
    /// Check a .bin/.idx pair and tell its size and hashes
    InspectData {
        /// Path of the pair without extension
        prefix: PathBuf,
    },
}

pub(crate) fn execute(command: DataCommand) -> Result<(), TrainerError> {
    match command {
        DataCommand::TrainTokenizer { input, vocab_size, output } => {
            let sha256 = tokenizer::train(&input, vocab_size, &output).map_err(failure)?;
            println!("{}", serde_json::json!({"vocab_size": vocab_size, "sha256": sha256}));
        }
        DataCommand::Tokenize { tokenizer, input, output } => print(&tokenizer::tokenize(&tokenizer, &input, &output).map_err(failure)?),
        DataCommand::InspectData { prefix } => print(&tokenizer::inspect(&prefix).map_err(failure)?),
    }
    Ok(())
}

fn print(summary: &TokenSummary) {
    println!(
        "{}",
        serde_json::json!({"documents": summary.documents, "tokens": summary.tokens, "sha256_bin": summary.sha256_bin, "sha256_idx": summary.sha256_idx})
    );
}

/// Which exit code an error has: wrong arguments 2, wrong files 3, a disk that refuses 4.
fn failure(error: TokenizerError) -> TrainerError {
    let message = error.to_string();
    match error {
        TokenizerError::VocabularyTooSmall(_) => TrainerError::BadInput(message),
        TokenizerError::Data(DataError::Write { .. }) => TrainerError::Machine(message),
        _ => TrainerError::BadFile(message),
    }
}
