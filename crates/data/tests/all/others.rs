//! Other programs' formats once more, from their descriptions: shares nothing with the crate.

use std::fs;
use std::path::Path;

/// Numbers from a file, one after the other.
pub struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    /// An unsigned number of so many bytes, lowest first.
    pub fn unsigned(&mut self, width: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(self.bytes(width));
        u64::from_le_bytes(bytes)
    }

    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}

/// Code, width, and whether it is signed, of Megatron-LM's integer types.
pub const MEGATRON_TYPES: [(u8, usize, bool); 6] =
    [(1, 1, false), (2, 1, true), (3, 2, true), (4, 4, true), (5, 8, true), (8, 2, false)];

/// The documents of `PREFIX.bin` and `PREFIX.idx`.
pub fn read_megatron(prefix: &Path) -> Vec<Vec<u32>> {
    let index = fs::read(prefix.with_extension("idx")).unwrap();
    let data = fs::read(prefix.with_extension("bin")).unwrap();
    let mut index = Cursor::new(&index);
    assert_eq!(index.bytes(9), b"MMIDIDX\x00\x00");
    assert_eq!(index.unsigned(8), 1);
    let code = index.unsigned(1) as u8;
    let (_, width, _) = MEGATRON_TYPES.into_iter().find(|(known, ..)| *known == code).unwrap();
    let sequences = index.unsigned(8);
    let ends = index.unsigned(8);
    let lengths: Vec<u64> = (0..sequences).map(|_| index.unsigned(4)).collect();
    let pointers: Vec<u64> = (0..sequences).map(|_| index.unsigned(8)).collect();
    let ends: Vec<u64> = (0..ends).map(|_| index.unsigned(8)).collect();
    assert!(index.is_at_end());
    let sequence = |at: usize| {
        let mut cursor = Cursor::new(&data[pointers[at] as usize..]);
        (0..lengths[at]).map(|_| cursor.unsigned(width) as u32).collect::<Vec<_>>()
    };
    assert_eq!(lengths.iter().sum::<u64>() as usize * width, data.len());
    ends.windows(2).map(|pair| (pair[0]..pair[1]).flat_map(|at| sequence(at as usize)).collect()).collect()
}

/// Writes documents, each of several sequences, in the type with the code.
pub fn write_megatron(prefix: &Path, code: u8, documents: &[Vec<Vec<u32>>]) {
    let (_, width, _) = MEGATRON_TYPES.into_iter().find(|(known, ..)| *known == code).unwrap();
    let sequences: Vec<&Vec<u32>> = documents.iter().flatten().collect();
    let mut index = b"MMIDIDX\x00\x00".to_vec();
    index.extend(1_u64.to_le_bytes());
    index.push(code);
    index.extend((sequences.len() as u64).to_le_bytes());
    index.extend((documents.len() as u64 + 1).to_le_bytes());
    sequences.iter().for_each(|sequence| index.extend((sequence.len() as i32).to_le_bytes()));
    let mut pointer = 0_i64;
    for sequence in &sequences {
        index.extend(pointer.to_le_bytes());
        pointer += (sequence.len() * width) as i64;
    }
    let mut first = 0_i64;
    index.extend(first.to_le_bytes());
    for document in documents {
        first += document.len() as i64;
        index.extend(first.to_le_bytes());
    }
    let tokens = sequences.iter().flat_map(|sequence| sequence.iter());
    let data: Vec<u8> = tokens.flat_map(|token| u64::from(*token).to_le_bytes()[..width].to_vec()).collect();
    fs::write(prefix.with_extension("idx"), index).unwrap();
    fs::write(prefix.with_extension("bin"), data).unwrap();
}

/// Documents of an llm.c file of GPT-2's tokens, without the token that begins them.
pub fn read_llm_c(path: &Path) -> Vec<Vec<u32>> {
    let bytes = fs::read(path).unwrap();
    let mut cursor = Cursor::new(&bytes);
    let header: Vec<u64> = (0..256).map(|_| cursor.unsigned(4)).collect();
    assert_eq!(header[..2], [20_240_520, 1]);
    assert!(header[3..].iter().all(|number| *number == 0));
    let tokens: Vec<u32> = (0..header[2]).map(|_| cursor.unsigned(2) as u32).collect();
    assert!(cursor.is_at_end() && tokens.first() == Some(&50256));
    tokens.split(|token| *token == 50256).skip(1).map(<[u32]>::to_vec).collect()
}

/// The bytes of an llm.c file.
pub fn llm_c(magic: u32, version: u32, width: usize, tokens: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    for (at, number) in [magic, version, tokens.len() as u32].into_iter().enumerate() {
        bytes[4 * at..4 * at + 4].copy_from_slice(&number.to_le_bytes());
    }
    bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()[..width].to_vec()));
    bytes
}
