//! Steps 5 and 6: what occurs once in the whole corpus.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

use crate::lines::{self, Line};
use crate::modes::Dropped;

/// Lines with fewer letters and digits may repeat.
const SHORTEST_KEY: usize = 40;
/// Shorter texts are dropped, bytes.
const SHORTEST_TEXT: usize = 200;

/// What was seen so far: 16 bytes a long line and 32 a text, and the table's spare room (about 100 MB for the 3 million lines of webdocs).
#[derive(Default)]
pub(crate) struct Seen {
    lines: HashSet<[u8; 16]>,
    texts: HashSet<[u8; 32]>,
}

impl Seen {
    /// The text of a document with what no document before it has. Its lines are remembered even if it is dropped.
    pub(crate) fn new_text(&mut self, document: Vec<Line>) -> Result<Vec<u8>, Dropped> {
        let kept = lines::tidy(document.into_iter().filter(|line| self.is_new(line)).collect());
        if !lines::is_prose(&kept) {
            return Err(Dropped("not_prose_after_dedup"));
        }
        let text = kept.join(&b'\n');
        if text.len() < SHORTEST_TEXT {
            return Err(Dropped("short"));
        }
        if self.texts.insert(Sha256::digest(&text).into()) { Ok(text) } else { Err(Dropped("duplicate")) }
    }

    fn is_new(&mut self, line: &[u8]) -> bool {
        let key: Vec<u8> = line.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect();
        if key.len() < SHORTEST_KEY {
            return true;
        }
        let digest: [u8; 32] = Sha256::digest(&key).into();
        let mut start = [0; 16];
        start.copy_from_slice(&digest[..16]);
        self.lines.insert(start)
    }
}
