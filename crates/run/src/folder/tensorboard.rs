//! Scalars as TensorBoard reads them: event files of TensorFlow's records.
//!
//! A record is `length (8 bytes, little endian), masked CRC-32C of these 8 bytes, data, masked CRC-32C of the data`; its data
//! are an `Event` of TensorFlow's `event.proto` in protocol buffers' wire format, of which only the few fields below are
//! used. A file begins with its version. A part of a run that goes on writes a file of its own, which says first at which step it
//! begins: TensorBoard then forgets what a former part said of that step and later ones.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use quadrille_engine::{Routed, StepRecord};

use super::Lines;

/// What all names of event files begin with. TensorBoard reads them in the order of their names.
const PREFIX: &str = "events.out.tfevents.";
/// The version of the format.
const FILE_VERSION: &str = "brain.Event:2";
/// `SessionLog.START`.
const SESSION_START: u64 = 1;

/// The event file of one part of a run.
#[derive(Debug)]
pub struct EventFile {
    records: Lines,
}

impl EventFile {
    /// Begins a file in `folder` for the steps after `done`.
    ///
    /// # Errors
    /// The file that cannot be written, with the system's reason.
    pub fn begin(folder: &Path, done: u64) -> Result<Self, (PathBuf, io::Error)> {
        let (path, first) = next(folder, now() as u64).map_err(|error| (folder.to_owned(), error))?;
        let mut file = Self { records: Lines::create(&path).map_err(|error| (path, error))? };
        file.add(&Event { what: What::FileVersion, step: 0 })?;
        // Also a run that was killed before its first checkpoint begins again at step 1.
        if !first {
            file.add(&Event { what: What::SessionStart, step: done + 1 })?;
        }
        Ok(file)
    }

    /// From now on what cannot be written waits until it can.
    pub fn wait_for_space(&mut self) {
        self.records.wait_for_space();
    }

    /// Tries again to write what is waiting.
    ///
    /// # Errors
    /// The file that cannot be written, with the system's reason.
    pub fn flush(&mut self) -> Result<(), (PathBuf, io::Error)> {
        self.records.flush().map_err(|error| (self.records.path().to_owned(), error))
    }

    /// Adds what a step has measured. Numbers that are not finite stay what they are.
    pub fn step(&mut self, record: &StepRecord) -> Result<(), (PathBuf, io::Error)> {
        let StepRecord { loss, grad_norm, lr, tokens_per_second, .. } = *record;
        let mut scalars = vec![
            ("train/loss", loss),
            ("train/grad_norm", grad_norm),
            ("train/lr", lr),
            ("train/tokens_per_second", tokens_per_second),
        ];
        if let Some(Routed { balance, z, dropped, most, idle, imbalance, .. }) = record.router {
            scalars.extend([("experts/balance", balance), ("experts/z", z), ("experts/dropped", dropped)]);
            let idle = idle as f64;
            scalars.extend([("experts/most", most), ("experts/idle", idle), ("experts/imbalance", imbalance)]);
        }
        self.scalars(record.step, &scalars)
    }

    /// Adds the loss of a validation, in nats.
    pub fn validation(&mut self, step: u64, loss: f64) -> Result<(), (PathBuf, io::Error)> {
        self.scalars(step, &[("validation/loss", loss), ("validation/perplexity", loss.exp())])
    }

    fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<(), (PathBuf, io::Error)> {
        self.add(&Event { what: What::Scalars(scalars), step })
    }

    /// Writes a record in one piece: a process that is killed leaves whole ones.
    fn add(&mut self, event: &Event) -> Result<(), (PathBuf, io::Error)> {
        let record = record(&event.encode(now()));
        self.records.append_bytes(&record).map_err(|error| (self.records.path().to_owned(), error))
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The path of a file that comes after all that are there, also if a clock was set back; and whether it is the first.
fn next(folder: &Path, now: u64) -> io::Result<(PathBuf, bool)> {
    let mut first = true;
    let mut name = format!("{PREFIX}{now:010}.0000");
    for entry in fs::read_dir(folder)? {
        let Ok(other) = entry?.file_name().into_string() else { continue };
        let Some((seconds, part)) = other.strip_prefix(PREFIX).and_then(|rest| rest.split_once('.')) else { continue };
        first = false;
        if let (Ok(seconds), Ok(part), true) = (seconds.parse::<u64>(), part.parse::<u64>(), other >= name) {
            name = format!("{PREFIX}{seconds:010}.{:04}", part + 1);
        }
    }
    Ok((folder.join(name), first))
}

/// `Event`, with one of the things that it may hold.
struct Event<'a> {
    what: What<'a>,
    step: u64,
}

enum What<'a> {
    FileVersion,
    SessionStart,
    /// Tags and values.
    Scalars(&'a [(&'a str, f64)]),
}

impl Event<'_> {
    fn encode(&self, wall_time: f64) -> Vec<u8> {
        let mut message = Message::default();
        message.double(1, wall_time);
        message.integer(2, self.step);
        match self.what {
            What::FileVersion => message.bytes(3, FILE_VERSION.as_bytes()),
            What::SessionStart => {
                let mut session = Message::default();
                session.integer(1, SESSION_START);
                message.bytes(7, &session.0);
            }
            What::Scalars(scalars) => {
                let mut summary = Message::default();
                for (tag, value) in scalars {
                    let mut scalar = Message::default();
                    scalar.bytes(1, tag.as_bytes());
                    // The format knows single precision only.
                    scalar.float(2, *value as f32);
                    summary.bytes(1, &scalar.0);
                }
                message.bytes(5, &summary.0);
            }
        }
        message.0
    }
}

/// A protocol buffers message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// The number of a field and how its value is written: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
    fn key(&mut self, field: u64, kind: u64) {
        self.varint((field << 3) | kind);
    }

    fn integer(&mut self, field: u64, value: u64) {
        self.key(field, 0);
        self.varint(value);
    }

    fn double(&mut self, field: u64, value: f64) {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
    }

    fn float(&mut self, field: u64, value: f32) {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }
}

/// A record of TensorFlow's files.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(data.len() + 16);
    record.extend(length);
    record.extend(masked_crc(&length).to_le_bytes());
    record.extend(data);
    record.extend(masked_crc(data).to_le_bytes());
    record
}

/// The checksum as records hold it: rotated and moved, so that checksums of data that hold checksums stay good ones.
fn masked_crc(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli's polynomial, bits reversed).
fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(!0, |crc, byte| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)])
}

/// The checksums of single bytes.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Of RFC 3720, appendix B.4, and the usual check.
    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn files_follow_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let begin = |now| {
            let (path, _) = next(folder.path(), now).unwrap();
            fs::write(&path, "").unwrap();
            path.file_name().unwrap().to_str().unwrap().to_owned()
        };
        fs::write(folder.path().join("events.jsonl"), "").unwrap();
        assert!(next(folder.path(), 100).unwrap().1);
        let names = [100, 100, 90, 2_000_000_000].map(begin);
        assert_eq!(names[0], "events.out.tfevents.0000000100.0000");
        assert!(
            names.is_sorted() && names[2].ends_with("100.0002") && names[3].ends_with("2000000000.0000"),
            "{names:?}"
        );
    }
}
