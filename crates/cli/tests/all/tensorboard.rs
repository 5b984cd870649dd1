//! The event files of a run, read by a reader of its own: TensorFlow's records, and of protocol buffers what they use.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const TINY: &str = "train --model gpt-tiny --set vocab=256 --threads 1 --grid x=2";

fn succeed(folder: &Path, line: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quadrille"));
    let output = command.args(line.split_whitespace()).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// CRC-32C bit by bit, then masked.
fn masked_crc(data: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in data {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    let crc = !crc;
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The data of every record; nothing may be left over.
fn records(bytes: &[u8]) -> Vec<&[u8]> {
    let mut rest = bytes;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        let crc = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        assert_eq!(crc(8), masked_crc(&rest[..8]), "of the length");
        let data = &rest[12..12 + length];
        assert_eq!(crc(12 + length), masked_crc(data), "of the data");
        found.push(data);
        rest = &rest[16 + length..];
    }
    found
}

/// A field's number, and its bytes: numbers as eight or four, varints as eight.
fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(message: &mut &[u8]) -> u64 {
        let end = message.iter().position(|byte| byte & 0x80 == 0).unwrap();
        let (number, rest) = message.split_at(end + 1);
        *message = rest;
        number.iter().rev().fold(0, |value, byte| (value << 7) | u64::from(byte & 0x7f))
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let length = match key & 7 {
            0 => {
                found.push((key >> 3, varint(&mut message).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => varint(&mut message) as usize,
            5 => 4,
            kind => panic!("a field of kind {kind}"),
        };
        let (value, rest) = message.split_at(length);
        found.push((key >> 3, value.to_vec()));
        message = rest;
    }
    found
}

/// What an event holds.
#[derive(Debug, PartialEq)]
enum Event {
    Version(String),
    /// The status and the step.
    Session(u64, u64),
    Scalars(u64, BTreeMap<String, f32>),
}

fn event(data: &[u8]) -> Event {
    let fields_of: BTreeMap<u64, Vec<u8>> = fields(data).into_iter().collect();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let wall_time = f64::from_le_bytes(fields_of[&1].as_slice().try_into().unwrap());
    assert!((1.7e9..1e11).contains(&wall_time), "{wall_time}");
    let step = number(&fields_of[&2]);
    if let Some(version) = fields_of.get(&3) {
        return Event::Version(String::from_utf8(version.clone()).unwrap());
    }
    if let Some(session) = fields_of.get(&7) {
        return Event::Session(number(&fields(session)[0].1), step);
    }
    let scalar = |(field, value): (u64, Vec<u8>)| {
        let parts: BTreeMap<u64, Vec<u8>> = fields(&value).into_iter().collect();
        assert_eq!(field, 1);
        let value = f32::from_le_bytes(parts[&2].as_slice().try_into().unwrap());
        (String::from_utf8(parts[&1].clone()).unwrap(), value)
    };
    Event::Scalars(step, fields(&fields_of[&5]).into_iter().map(scalar).collect())
}

/// The events of every file, in the order in which TensorBoard reads them.
fn files(folder: &Path) -> Vec<Vec<Event>> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<_> = names.filter(|path| path.to_str().unwrap().contains("tfevents")).collect();
    names.sort();
    let read = |path| records(&fs::read(path).unwrap()).into_iter().map(event).collect();
    names.into_iter().map(read).collect()
}

/// Steps and scalars of the tag.
fn curve(events: &[Event], tag: &str) -> Vec<(u64, f32)> {
    let value = |event: &Event| match event {
        Event::Scalars(step, scalars) => Some((*step, *scalars.get(tag)?)),
        _ => None,
    };
    events.iter().filter_map(value).collect()
}

/// Steps and numbers of `steps.jsonl`.
fn logged(folder: &Path, field: &str) -> Vec<(u64, f32)> {
    let text = fs::read_to_string(folder.join("steps.jsonl")).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.map(|record| (record["step"].as_u64().unwrap(), record[field].as_f64().unwrap() as f32)).collect()
}

#[test]
fn scalars_are_those_of_the_log_and_a_resumed_run_begins_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{TINY} --steps 5 --validation 0.1 --validate-every 2 --validation-batches 2 --out run");
    succeed(folder.path(), &line);
    let run = folder.path().join("run");
    let first = files(&run);
    assert_eq!((first.len(), &first[0][0]), (1, &Event::Version("brain.Event:2".to_owned())));
    for field in ["loss", "grad_norm", "lr", "tokens_per_second"] {
        assert_eq!(curve(&first[0], &format!("train/{field}")), logged(&run, field), "{field}");
    }
    let validation = curve(&first[0], "validation/loss");
    assert_eq!(validation.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [2, 4, 5]);
    for ((_, loss), (_, perplexity)) in validation.iter().zip(curve(&first[0], "validation/perplexity")) {
        assert!((loss.exp() / perplexity - 1.0).abs() < 1e-5, "{loss} and {perplexity}");
    }
    succeed(folder.path(), "train --resume run --steps 7");
    let both = files(&run);
    assert_eq!((both.len(), &both[0]), (2, &first[0]));
    // STATUS START: what was said of step 6 and later ones is forgotten.
    assert_eq!(both[1][..2], [Event::Version("brain.Event:2".to_owned()), Event::Session(1, 6)]);
    assert_eq!(curve(&both[1], "train/loss"), logged(&run, "loss")[5..]);
    // Without a checkpoint a run begins again, and TensorBoard forgets all of it.
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    succeed(folder.path(), "train --resume run --steps 2");
    let third = &files(&run)[2];
    assert_eq!(third[1], Event::Session(1, 1));
    assert_eq!(curve(third, "train/loss"), logged(&run, "loss"));
}

#[test]
fn numbers_that_are_not_finite_stay_so() {
    let folder = tempfile::tempdir().unwrap();
    let line = "--set warmup_steps=0 --steps 3 --lr 1e30 --on-divergence skip --out run";
    succeed(folder.path(), &format!("{TINY} {line}"));
    let losses = curve(&files(&folder.path().join("run"))[0], "train/loss");
    assert!(losses.len() == 3 && losses[0].1.is_finite() && losses[2].1.is_nan(), "{losses:?}");
}
