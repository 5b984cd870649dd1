//! How a token lies in a file.

/// An integer type, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    I64,
}

impl Element {
    /// Bytes of a token.
    pub const fn width(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 => 4,
            Self::I64 => 8,
        }
    }

    /// The narrowest unsigned type that holds tokens below `vocab`.
    pub const fn narrowest(vocab: usize) -> Self {
        match vocab {
            0..=0x100 => Self::U8,
            0x101..=0x1_0000 => Self::U16,
            _ => Self::U32,
        }
    }

    /// Copies the tokens that `bytes` hold into `out`.
    ///
    /// # Errors
    /// Place and value of one that is negative or above 2^32 - 2: no token.
    pub fn read(self, bytes: &[u8], out: &mut [u32]) -> Result<(), (usize, i64)> {
        match self {
            Self::U8 => copy(bytes, out, |[a]: [u8; 1]| a.into()),
            Self::I8 => copy(bytes, out, |bytes| i8::from_le_bytes(bytes).into()),
            Self::U16 => copy(bytes, out, |bytes| u16::from_le_bytes(bytes).into()),
            Self::I16 => copy(bytes, out, |bytes| i16::from_le_bytes(bytes).into()),
            Self::U32 => copy(bytes, out, |bytes| u32::from_le_bytes(bytes).into()),
            Self::I32 => copy(bytes, out, |bytes| i32::from_le_bytes(bytes).into()),
            Self::I64 => copy(bytes, out, i64::from_le_bytes),
        }
    }

    /// Appends `tokens`, which the type can hold, to `bytes`.
    pub fn write(self, tokens: &[u32], bytes: &mut Vec<u8>) {
        for token in tokens {
            bytes.extend_from_slice(&u64::from(*token).to_le_bytes()[..self.width()]);
        }
    }
}

fn copy<const N: usize>(bytes: &[u8], out: &mut [u32], number: impl Fn([u8; N]) -> i64) -> Result<(), (usize, i64)> {
    let (numbers, _) = bytes.as_chunks::<N>();
    for (at, (token, bytes)) in out.iter_mut().zip(numbers).enumerate() {
        let value = number(*bytes);
        match u32::try_from(value) {
            Ok(value) if value < u32::MAX => *token = value,
            _ => return Err((at, value)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_they_were_written() {
        for element in [Element::U8, Element::I8, Element::U16, Element::I16, Element::U32, Element::I32, Element::I64]
        {
            let mut bytes = Vec::new();
            let mut out = [0; 3];
            element.write(&[1, 127, 0], &mut bytes);
            element.read(&bytes, &mut out).unwrap();
            assert_eq!((out, bytes.len()), ([1, 127, 0], 3 * element.width()));
        }
    }

    #[test]
    fn what_is_no_token_is_told() {
        let read = |element: Element, bytes: &[u8]| element.read(bytes, &mut [0; 2]);
        assert_eq!(read(Element::I16, &[1, 0, 0xff, 0xff]), Err((1, -1)));
        assert_eq!(read(Element::U32, &[0xff; 8]), Err((0, 0xffff_ffff)));
        assert_eq!(read(Element::I64, &[0, 0, 0, 0, 1, 0, 0, 0]), Err((0, 1 << 32)));
        assert_eq!(read(Element::I8, &[3, 0x80]), Err((1, -128)));
    }

    #[test]
    fn the_narrowest_type_holds_the_largest_token() {
        for (vocab, width) in [(256, 1), (257, 2), (65536, 2), (65537, 4), (1 << 31, 4)] {
            assert_eq!(Element::narrowest(vocab).width(), width);
        }
    }
}
