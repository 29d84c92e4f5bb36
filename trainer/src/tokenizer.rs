//! Byte-level BPE: trained from documents, and applied to them. Not used while a model trains: runs read tokens.
//!
//! The tokenizer is Hugging Face's `tokenizers` with GPT-2's pre-tokenizer (its regular expression, every byte a letter of
//! the alphabet), no normaliser and no post-processor, so that decoding gives back the text byte for byte. The same input
//! gives the same file at any number of threads.

use std::path::{Path, PathBuf};

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tokenizers::decoders::byte_level::ByteLevel as ByteLevelDecoder;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{AddedToken, Tokenizer, TokenizerBuilder};

use crate::data::{self, DataError, TokenStream, TokenSummary, TokenWriter};
use crate::whole_files::write_whole;

/// The separator of documents, and entry 0 of a vocabulary trained here.
pub const END_OF_DOCUMENT: &str = "<|endoftext|>";
/// What others call their separator, in the order in which they are looked for.
const SEPARATORS: [&str; 3] = [END_OF_DOCUMENT, "<|end_of_text|>", "</s>"];
/// Every byte and the separator: no byte-level vocabulary is smaller.
pub const SMALLEST_VOCABULARY: usize = 257;
/// A pair that occurs once teaches nothing.
const LEAST_OCCURRENCES: u64 = 2;
/// Documents in memory at a time while tokenising.
const BATCH: usize = 1024;

/// Why no tokenizer or no tokens came out.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The documents could not be read, or the tokens not written.
    #[error(transparent)]
    Data(#[from] DataError),
    /// No vocabulary of this size can be byte-level.
    #[error("--vocab-size {0} is too small: the 256 bytes and the separator take {SMALLEST_VOCABULARY}")]
    VocabularyTooSmall(usize),
    /// The text ran out of pairs to merge.
    #[error("{}: has pairs for a vocabulary of {possible} only, {asked} were asked for; use more text or --vocab-size {possible}", path.display())]
    TextTooSmall { path: PathBuf, asked: usize, possible: usize },
    /// The file is no tokenizer of a kind that can be used here.
    #[error("{}: {problem}; name a tokenizer.json of Hugging Face's tokenizers", path.display())]
    Unusable {
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The library refused a text, which it never should.
    #[error("the tokenizer library failed: {0}; please report it with the text")]
    Library(String),
}

/// Learns a vocabulary of exactly `vocabulary` entries from the documents of `input` (.jsonl or .txt) and writes it to
/// `output`, aside first. Returns the SHA-256 of the file in hexadecimal digits.
pub fn train(input: &Path, vocabulary: usize, output: &Path) -> Result<String, TokenizerError> {
    if vocabulary < SMALLEST_VOCABULARY {
        return Err(TokenizerError::VocabularyTooSmall(vocabulary));
    }
    let mut failure = None;
    let documents = data::documents(input)?.map_while(|document| document.map_err(|error| failure = Some(error)).ok());
    let mut trainer = BpeTrainer::builder()
        .vocab_size(vocabulary)
        .min_frequency(LEAST_OCCURRENCES)
        .show_progress(false)
        .special_tokens(vec![AddedToken::from(END_OF_DOCUMENT, true)])
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let mut tokenizer = TokenizerBuilder::<BPE, NormalizerWrapper, ByteLevel, PostProcessorWrapper, ByteLevelDecoder>::new()
        .with_model(BPE::default())
        .with_pre_tokenizer(Some(byte_level()))
        .with_decoder(Some(byte_level()))
        .build()
        .map_err(library)?;
    tokenizer.train(&mut trainer, documents).map_err(library)?;
    if let Some(error) = failure {
        return Err(error.into());
    }
    let possible = tokenizer.get_vocab_size(true);
    if possible != vocabulary {
        return Err(TokenizerError::TextTooSmall { path: input.to_owned(), asked: vocabulary, possible });
    }
    let text = tokenizer.to_string(true).map_err(library)?;
    write_whole(output, text.as_bytes()).map_err(|source| DataError::write(output, source))?;
    Ok(data::sha256_of(output)?)
}

/// GPT-2's: no space put before the text, split by its regular expression.
fn byte_level() -> ByteLevel {
    ByteLevel::default().add_prefix_space(false).trim_offsets(true).use_regex(true)
}

fn library(error: tokenizers::Error) -> TokenizerError {
    TokenizerError::Library(error.to_string())
}

/// A tokenizer with a known separator, ready to use.
#[derive(Debug)]
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    end_of_document: u32,
}

impl TextTokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// [`TokenizerError::Data`] when it cannot be read, [`TokenizerError::Unusable`] when it is none, or has no separator.
    pub fn open(path: &Path) -> Result<Self, TokenizerError> {
        let bytes = std::fs::read(path).map_err(|source| DataError::read(path, source))?;
        let unusable = |problem: String| TokenizerError::Unusable { path: path.to_owned(), problem };
        let mut tokenizer = Tokenizer::from_bytes(&bytes).map_err(|error| unusable(error.to_string()))?;
        // A document that spells out the separator does not thereby end.
        tokenizer.set_encode_special_tokens(true);
        let end_of_document = SEPARATORS.iter().find_map(|separator| tokenizer.token_to_id(separator));
        let end_of_document = end_of_document.ok_or_else(|| unusable(format!("has none of the separators {}", SEPARATORS.join(", "))))?;
        Ok(Self { tokenizer, end_of_document })
    }

    /// Entries of the vocabulary, added tokens included.
    pub fn vocabulary(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    /// Id of the token that separates documents.
    pub fn end_of_document(&self) -> u32 {
        self.end_of_document
    }

    /// Ids of a text, without separator.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(self.tokenizer.encode_fast(text, false).map_err(library)?.get_ids().to_vec())
    }

    /// Text of ids, the separator spelled out.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.tokenizer.decode(ids, false).map_err(library)
    }
}

/// Writes the tokens of the documents of `input` (.jsonl or .txt), each followed by the separator, to `prefix.bin` and
/// `prefix.idx`. Documents are tokenised in parallel and written in their order.
pub fn tokenize(tokenizer: &Path, input: &Path, prefix: &Path) -> Result<TokenSummary, TokenizerError> {
    let tokenizer = TextTokenizer::open(tokenizer)?;
    let mut documents = data::documents(input)?;
    let mut writer = TokenWriter::create(prefix, tokenizer.vocabulary())?;
    loop {
        let batch = documents.by_ref().take(BATCH).collect::<Result<Vec<String>, DataError>>()?;
        if batch.is_empty() {
            return Ok(writer.finish()?);
        }
        let encoded: Vec<Vec<u32>> = batch.par_iter().map(|text| tokenizer.encode(text)).collect::<Result<_, _>>()?;
        for mut ids in encoded {
            ids.push(tokenizer.end_of_document);
            writer.push(&ids)?;
        }
    }
}

/// Checks a pair and sums it up.
pub fn inspect(prefix: &Path) -> Result<TokenSummary, TokenizerError> {
    Ok(TokenStream::open(prefix)?.summary()?)
}
