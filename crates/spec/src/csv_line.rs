//! On which line a record of a CSV file stands.

/// The number of the line on which a record stands, of which a reader says that it was read from byte `start` on, in line `line`: what
/// ends the line before, and empty lines, belong to no record.
pub fn csv_line(text: &[u8], start: u64, line: u64) -> u64 {
    let rest = usize::try_from(start).ok().and_then(|start| text.get(start..)).unwrap_or_default();
    let ends = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    line + ends.filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_lines_before_a_record_are_none_of_it() {
        let text = b"a,b\r\n\r\n1,2\n\n\n3,4";
        // A reader ends the header behind its first `\r`, and the second record behind its `\n`.
        assert_eq!(csv_line(text, 4, 1), 3);
        assert_eq!(csv_line(text, 11, 4), 6);
        assert_eq!((csv_line(text, 7, 3), csv_line(text, 99, 1)), (3, 1));
    }
}
