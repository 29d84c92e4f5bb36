//! Event files for TensorBoard, written while a run trains: what `metrics.jsonl` says, for whoever wants to look at it there. They lie outside
//! of the run's folder, are read by nothing here, and change no result.
//!
//! A file is a sequence of TFRecords: length (u64), masked CRC32C of it, data, masked CRC32C of the data, all little-endian. The data is an
//! `Event` of tensorflow/core/util/event.proto in Protocol Buffers' wire format, of which five kinds of fields are needed.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use contract::metrics::MetricsLine;
use contract::run_file::RunIdentity;

use crate::error::TrainerError;

/// The event file of one session of a run.
#[derive(Debug)]
pub struct Events {
    path: PathBuf,
    file: File,
}

impl Events {
    /// A new file in `folder`/PROFILE/ARM/SEED. Its first events make readers forget what an earlier session wrote of the steps after
    /// `resumed_from`, which are done again.
    pub fn start(folder: &Path, run: &RunIdentity, resumed_from: u64) -> Result<Self, TrainerError> {
        let folder = folder.join(run.profile.as_str()).join(run.arm.as_str()).join(run.seed.to_string());
        std::fs::create_dir_all(&folder).map_err(|source| TrainerError::write(&folder, source))?;
        // Readers take the files of a folder in the order of their names.
        let path = folder.join(format!("events.out.tfevents.{:010}.{resumed_from:09}", now() as u64));
        let file = File::create(&path).map_err(|source| TrainerError::write(&path, source))?;
        let mut events = Self { path, file };
        events.write(&event(now(), 0, |event| bytes(event, 3, b"brain.Event:2")))?;
        let first = if resumed_from == 0 { 0 } else { resumed_from + 1 };
        // SessionLog.status = START.
        events.write(&event(now(), first, |event| bytes(event, 7, &[1 << 3, 1])))?;
        Ok(events)
    }

    /// What a line of `metrics.jsonl` says, by tag. Numbers that are not finite have no event.
    pub fn record(&mut self, line: &MetricsLine) -> Result<(), TrainerError> {
        let (step, scalars) = match line {
            MetricsLine::Train(line) => {
                let rate = Some(line.learning_rate);
                let scalars = [("loss/train", line.loss), ("gradient_norm", line.grad_norm), ("learning_rate", rate)];
                (line.step, scalars.map(|(tag, value)| (tag.to_owned(), value)).to_vec())
            }
            MetricsLine::Evaluation(line) => (line.step, vec![("loss/validation".to_owned(), line.loss)]),
            MetricsLine::Reading(line) => (line.step, vec![(format!("reading/{}", line.recipe), line.loss)]),
            MetricsLine::Quantisation(line) => {
                let tag = format!("relative_error/{}.{}/{}.{}", line.pass, line.operand, line.layer, line.linear);
                (line.step, vec![(tag, line.relative_error)])
            }
            MetricsLine::Header(_) | MetricsLine::Diverged(_) => return Ok(()),
        };
        let scalars = scalars.iter().filter_map(|(tag, value)| Some((tag.as_str(), (*value)?)));
        scalars.into_iter().try_for_each(|(tag, value)| self.write(&scalar(now(), step, tag, value)))
    }

    fn write(&mut self, event: &[u8]) -> Result<(), TrainerError> {
        self.file.write_all(&record(event)).map_err(|source| TrainerError::write(&self.path, source))
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Event: wall_time = 1, step = 2, and one field that says what it is.
fn event(wall_time: f64, step: u64, what: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut event = vec![1 << 3 | 1];
    event.extend(wall_time.to_le_bytes());
    if step > 0 {
        event.push(2 << 3);
        varint(&mut event, step);
    }
    what(&mut event);
    event
}

/// Event.summary = 5, Summary.value = 1, Value: tag = 1, simple_value = 2.
fn scalar(wall_time: f64, step: u64, tag: &str, value: f64) -> Vec<u8> {
    let (mut inner, mut summary) = (Vec::new(), Vec::new());
    bytes(&mut inner, 1, tag.as_bytes());
    inner.push(2 << 3 | 5);
    inner.extend((value as f32).to_le_bytes());
    bytes(&mut summary, 1, &inner);
    event(wall_time, step, |event| bytes(event, 5, &summary))
}

/// A field of a length and so many bytes.
fn bytes(message: &mut Vec<u8>, field: u8, content: &[u8]) {
    message.push(field << 3 | 2);
    varint(message, content.len() as u64);
    message.extend(content);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// A TFRecord.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = length.to_vec();
    record.extend(masked(crc32c(&length)).to_le_bytes());
    record.extend(data);
    record.extend(masked(crc32c(data)).to_le_bytes());
    record
}

/// As tensorflow/core/lib/hash/crc32c.h stores it, so that a checksum of data that holds checksums is none of its own.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Castagnoli's polynomial, reflected, bit by bit: some hundred bytes a step.
fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the catalogue of CRCs, and RFC 3720's of 32 bytes.
    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    /// What tensorboard 2.21's own RecordWriter and event_pb2 make of the same three events.
    #[test]
    fn records_are_those_of_tensorboards_own_writer() {
        let theirs = "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c\
                      100000000000000095fbfe1809000000000000f83f10ac023a020801713b788a\
                      2100000000000000017becf609000000000000f83f10ac022a130a110a0a6c6f73732f747261696e15000010403143ad63";
        let version = event(1.5, 0, |event| bytes(event, 3, b"brain.Event:2"));
        let start = event(1.5, 300, |event| bytes(event, 7, &[1 << 3, 1]));
        let ours: Vec<u8> = [version, start, scalar(1.5, 300, "loss/train", 2.25)].iter().flat_map(|event| record(event)).collect();
        assert_eq!(contract::digest::hexadecimal(&ours), theirs);
    }
}
