//! Decompression of pages into as many bytes as their headers say, and no more.
//!
//! The library's decoders of gzip, Brotli and frames of LZ4 take whatever a page unpacks to, and its binding of Zstandard is C.

use std::io::{self, Read};

use bytes::Bytes;
use parquet::basic::CompressionCodec;
use parquet::errors::Result;
use ruzstd::decoding::StreamingDecoder;

use super::pages::error;

/// Bytes of a decompressed page at most; writers make pages of a megabyte.
const LARGEST_PAGE: usize = 1 << 30;

/// Bytes that the decoder of Brotli reads at a time.
const BUFFER: usize = 1 << 12;

/// The first `start` bytes of a page as they are, and those after it decompressed: `size` bytes together.
///
/// # Errors
/// Other sizes, sizes of more than [`LARGEST_PAGE`], bytes that the codec does not write, and an unknown codec.
pub(super) fn decompressed(codec: CompressionCodec, page: &[u8], start: usize, size: usize) -> Result<Bytes> {
    if size > LARGEST_PAGE {
        return Err(error(format!("a page has {size} bytes, and {LARGEST_PAGE} are read at most")));
    }
    let Some((levels, compressed)) = page.split_at_checked(start).filter(|_| start <= size) else {
        return Err(error("the levels of a page are longer than the page"));
    };
    let mut plain = vec![0; size];
    plain[..start].copy_from_slice(levels);
    let values = &mut plain[start..];
    // A page without values may have no compressed bytes either.
    if !values.is_empty() {
        decompress(codec, compressed, values)
            .map_err(|reason| error(format!("{codec}: a page of {size} bytes: {reason}")))?;
    }
    Ok(plain.into())
}

/// Fills `out` with all that `compressed` unpacks to.
fn decompress(codec: CompressionCodec, compressed: &[u8], out: &mut [u8]) -> io::Result<()> {
    match codec {
        CompressionCodec::SNAPPY => snappy(compressed, out),
        CompressionCodec::GZIP => fill(flate2::read::MultiGzDecoder::new(compressed), out),
        CompressionCodec::BROTLI => fill(brotli::Decompressor::new(compressed, BUFFER), out),
        CompressionCodec::ZSTD => fill(Frames { compressed, decoder: None }, out),
        CompressionCodec::LZ4_RAW => lz4_block(compressed, out),
        // Programs have written three things under this name.
        CompressionCodec::LZ4 => hadoop(compressed, out)
            .or_else(|_| fill(lz4_flex::frame::FrameDecoder::new(compressed), out))
            .or_else(|_| lz4_block(compressed, out)),
        CompressionCodec::UNCOMPRESSED | CompressionCodec::LZO => Err(io::Error::other("the codec is not read")),
    }
}

/// Fills `out` from a decoder, which must end there.
fn fill(mut decoder: impl Read, out: &mut [u8]) -> io::Result<()> {
    decoder.read_exact(out)?;
    match decoder.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::other("it unpacks to more")),
    }
}

fn snappy(compressed: &[u8], out: &mut [u8]) -> io::Result<()> {
    let length = snap::raw::decompress_len(compressed)?;
    check_length(length, out)?;
    check_length(snap::raw::Decoder::new().decompress(compressed, out)?, out)
}

fn lz4_block(compressed: &[u8], out: &mut [u8]) -> io::Result<()> {
    check_length(lz4_flex::block::decompress_into(compressed, out).map_err(io::Error::other)?, out)
}

fn check_length(length: usize, out: &[u8]) -> io::Result<()> {
    if length == out.len() { Ok(()) } else { Err(io::Error::other(format!("it unpacks to {length}"))) }
}

/// Blocks of LZ4 as Hadoop writes them: before each its length, then that of its compressed bytes, both with the highest byte
/// first.
fn hadoop(mut compressed: &[u8], mut out: &mut [u8]) -> io::Result<()> {
    while !compressed.is_empty() {
        let length = take_length(&mut compressed)?;
        let packed = take_length(&mut compressed)?;
        let block = compressed.split_off(..packed).ok_or(io::ErrorKind::UnexpectedEof)?;
        let part = out.split_off_mut(..length).ok_or(io::ErrorKind::InvalidData)?;
        lz4_block(block, part)?;
    }
    check_length(0, out)
}

fn take_length(bytes: &mut &[u8]) -> io::Result<usize> {
    let mut length = [0; 4];
    bytes.read_exact(&mut length)?;
    Ok(u32::from_be_bytes(length) as usize)
}

/// Frames of Zstandard one after the other.
struct Frames<'a> {
    /// Bytes after the frame that is being read.
    compressed: &'a [u8],
    decoder: Option<Box<StreamingDecoder<&'a [u8], ruzstd::decoding::FrameDecoder>>>,
}

impl Read for Frames<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(decoder) = &mut self.decoder {
                let read = decoder.read(out)?;
                if read > 0 || out.is_empty() {
                    return Ok(read);
                }
                self.compressed = decoder.get_ref();
            }
            if self.compressed.is_empty() {
                return Ok(0);
            }
            let decoder = StreamingDecoder::new(self.compressed).map_err(io::Error::other)?;
            self.decoder = Some(Box::new(decoder));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Bytes of which a few hundred compressed ones are the rest.
    const BOMB: usize = 32 << 20;

    const CODECS: [CompressionCodec; 6] = [
        CompressionCodec::SNAPPY,
        CompressionCodec::GZIP,
        CompressionCodec::BROTLI,
        CompressionCodec::ZSTD,
        CompressionCodec::LZ4,
        CompressionCodec::LZ4_RAW,
    ];

    fn compressed(codec: CompressionCodec, plain: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        match codec {
            CompressionCodec::SNAPPY => packed = snap::raw::Encoder::new().compress_vec(plain).unwrap(),
            CompressionCodec::GZIP => {
                let mut encoder = flate2::write::GzEncoder::new(&mut packed, flate2::Compression::fast());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap();
            }
            CompressionCodec::BROTLI => {
                brotli::CompressorWriter::new(&mut packed, 4096, 1, 22).write_all(plain).unwrap()
            }
            CompressionCodec::ZSTD => {
                packed = ruzstd::encoding::compress_to_vec(plain, ruzstd::encoding::CompressionLevel::Fastest);
            }
            CompressionCodec::LZ4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(&mut packed);
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap();
            }
            _ => packed = lz4_flex::block::compress(plain),
        }
        packed
    }

    /// A page that unpacks to more than its header says is refused after as many bytes as the header says, which is all the
    /// memory that is taken; one that unpacks to less, too.
    #[test]
    fn pages_have_the_size_of_their_headers_in_every_codec() {
        let plain = vec![7; BOMB];
        for codec in CODECS {
            let packed = compressed(codec, &plain);
            assert!(packed.len() < BOMB / 15, "{codec}: {}", packed.len());
            assert!(decompressed(codec, &packed, 0, BOMB).unwrap() == plain, "{codec}");
            for size in [1, 1000, BOMB - 1, BOMB + 1] {
                let message = decompressed(codec, &packed, 0, size).unwrap_err().to_string();
                assert!(message.contains(&format!("a page of {size} bytes")), "{codec} {size}: {message}");
            }
            for size in [LARGEST_PAGE + 1, usize::MAX] {
                let message = decompressed(codec, &packed, 0, size).unwrap_err().to_string();
                assert!(message.contains("are read at most"), "{codec}: {message}");
            }
            // Levels stand before the values as they are.
            let page = [&b"levels"[..], &packed].concat();
            let whole = decompressed(codec, &page, 6, BOMB + 6).unwrap();
            assert!(whole[..6] == *b"levels" && whole[6..] == plain, "{codec}");
            decompressed(codec, &page, 6, BOMB).unwrap_err();
            decompressed(codec, b"page", 5, 9).unwrap_err();
            decompressed(codec, b"levels", 6, 3).unwrap_err();
            assert_eq!(decompressed(codec, b"levels", 6, 6).unwrap(), "levels");
        }
    }

    #[test]
    fn several_frames_are_read_one_after_the_other() {
        for codec in [CompressionCodec::GZIP, CompressionCodec::ZSTD] {
            let packed = [compressed(codec, b"one, "), compressed(codec, b"two")].concat();
            assert_eq!(decompressed(codec, &packed, 0, 8).unwrap(), "one, two", "{codec}");
        }
        let block = lz4_flex::block::compress(b"one");
        let lengths = [3_u32.to_be_bytes(), (block.len() as u32).to_be_bytes()].concat();
        let packed = [lengths, block].concat().repeat(2);
        assert_eq!(decompressed(CompressionCodec::LZ4, &packed, 0, 6).unwrap(), "oneone");
    }
}
