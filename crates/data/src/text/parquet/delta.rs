//! Numbers of strings in pages of the encodings DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY.
//!
//! Before the strings lie their lengths, or the lengths of what each shares with the one before it and then those of the rest,
//! and before each such list its number of entries. The library makes room for that many.

use parquet::errors::Result;

use super::pages::error;

/// Lengths for each byte of a page at most: blocks have 128 lengths and at least 5 bytes, of writers known today.
const LENGTHS_PER_BYTE: u64 = 1 << 10;

/// Refuses lists of lengths at the start of `values` with more entries than the page has values; there are `lists` of them.
pub(super) fn check_lengths(values: &[u8], lists: usize, limit: usize) -> Result<()> {
    let mut reader = Reader(values);
    let bytes = values.len() as u64;
    for list in 1..=lists {
        let header = reader.header()?;
        if header.total > limit as u64 || header.total > bytes.saturating_mul(LENGTHS_PER_BYTE) {
            return Err(error(format!(
                "a page of {limit} values and {bytes} bytes has the lengths of {} strings",
                header.total
            )));
        }
        if list < lists {
            reader.skip_blocks(&header)?;
        }
    }
    Ok(())
}

/// Beginning of a list of lengths.
struct Header {
    /// Lengths in a part of a block.
    part: u64,
    /// Parts of a block.
    parts: u64,
    /// Lengths.
    total: u64,
}

/// The bytes that are left.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads the header of a list.
    fn header(&mut self) -> Result<Header> {
        let block = self.number()?;
        let parts = self.number()?;
        let total = self.number()?;
        // The first length.
        self.number()?;
        if parts == 0 || !block.is_multiple_of(parts) {
            return Err(error(format!("a page has blocks of {block} lengths in {parts} parts")));
        }
        Ok(Header { part: block / parts, parts, total })
    }

    /// Leaves out the blocks behind a header.
    fn skip_blocks(&mut self, header: &Header) -> Result<()> {
        let mut left = header.total.saturating_sub(1);
        while left > 0 {
            // The least difference of the block.
            self.number()?;
            let widths = self.bytes(header.parts)?;
            if widths.is_empty() || header.part == 0 {
                return Err(error("a page has blocks without lengths"));
            }
            for width in widths {
                if left > 0 {
                    self.bytes(header.part.saturating_mul(u64::from(*width)) / 8)?;
                    left = left.saturating_sub(header.part);
                }
            }
        }
        Ok(())
    }

    /// The next bytes.
    fn bytes(&mut self, count: u64) -> Result<&'a [u8]> {
        let taken = usize::try_from(count).ok().and_then(|count| self.0.split_off(..count));
        taken.ok_or_else(|| error("the lengths of a page go beyond it"))
    }

    /// A number in parts of 7 bits, lowest first.
    fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.bytes(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(error("a number in the lengths of a page does not end"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header of blocks of 128 lengths in 4 parts, the first length being 0.
    fn header(total: &[u8]) -> Vec<u8> {
        [&[0x80, 1, 4], total, &[0]].concat()
    }

    #[test]
    fn more_lengths_than_values_are_refused_before_room_is_made_for_them() {
        // 2^36: ten bytes that ask for 256 GiB.
        let huge = header(&[0x80, 0x80, 0x80, 0x80, 0x80, 2]);
        for lists in [1, 2] {
            let message = check_lengths(&huge, lists, 100).unwrap_err().to_string();
            assert!(message.contains("has the lengths of 68719476736 strings"), "{message}");
            // Even where the metadata promise as many rows.
            check_lengths(&huge, lists, usize::MAX).unwrap_err();
        }
        check_lengths(&header(&[100]), 1, 100).unwrap();
        check_lengths(&header(&[101]), 1, 100).unwrap_err();
        check_lengths(&[0xff; 20], 1, 100).unwrap_err();
        check_lengths(&header(&[100])[..4], 1, 100).unwrap_err();
    }

    #[test]
    fn the_second_list_lies_behind_the_blocks_of_the_first() {
        // 129 lengths after the first one: a block whose second part has 2 bits for each of 32, and one of a single length in 3
        // bits.
        let first = [&[0, 0, 2, 0, 0][..], &[9; 8], &[0, 3, 7, 7, 7], &[9; 12]].concat();
        let page = |total: &[u8]| [header(&[0x82, 1]), first.clone(), header(total)].concat();
        check_lengths(&page(&[0x82, 1]), 2, 130).unwrap();
        let message = check_lengths(&page(&[0x83, 1]), 2, 130).unwrap_err().to_string();
        assert!(message.contains("a page of 130 values") && message.contains("131 strings"), "{message}");
        check_lengths(&page(&[0x82, 1])[..20], 2, 130).unwrap_err();
        // A list of a single entry has no blocks.
        let page = |total| [header(&[1]), header(&[total])].concat();
        check_lengths(&page(1), 2, 1).unwrap();
        check_lengths(&page(2), 2, 1).unwrap_err();
    }

    #[test]
    fn blocks_without_lengths_are_refused() {
        for (block, parts) in [(0, 4), (127, 4), (4, 0)] {
            check_lengths(&[block, parts, 5, 0, 0, 0, 0, 0, 0], 2, 100).unwrap_err();
        }
    }
}
