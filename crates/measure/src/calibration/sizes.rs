//! Sizes of what is measured: on a processor, on devices, and on an emulated one.

use quadrille_spec::ElementType;

/// Sizes of what is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizes {
    /// m, n and k of products: all triples, in f32, f64 and bf16.
    pub products: Vec<usize>,
    /// Attention, in each of these types.
    pub attention: Vec<AttentionSizes>,
    /// Type of the values of element-wise work: that in which runs there usually are.
    pub values: ElementType,
    /// Elements of each operand of element-wise work out of cache: fewer where memory is short.
    pub streamed: usize,
    /// The same in cache.
    pub in_cache: usize,
    /// Bytes that go to a device's memory and back; not measured where ranks have the host's memory.
    pub host_copy: usize,
    /// Bytes of collectives.
    pub collectives: Vec<u64>,
    /// Steps of the tiny model whose operations say what an operation takes by itself, at least one.
    pub steps: u64,
}

/// Shapes of attention: all triples.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionSizes {
    /// Type of the values.
    pub dtype: ElementType,
    /// Tokens of the sequence.
    pub sequences: Vec<usize>,
    /// Widths of a head.
    pub widths: Vec<usize>,
    /// Heads.
    pub heads: Vec<usize>,
}

/// Bytes that are powers of two.
fn powers(of: &[u32]) -> Vec<u64> {
    of.iter().map(|power| 1 << power).collect()
}

impl Sizes {
    /// Of ranks on a processor: those of small models, element-wise work of 64 MiB and 16 KiB; fewer if it is to be quick, or between
    /// `processes`, where networks may take a second for 16 MiB.
    pub fn of_processor(quick: bool, processes: bool) -> Self {
        let (sequences, widths) =
            if quick { (vec![64, 256], vec![64]) } else { (vec![64, 256, 1024], vec![32, 64, 128]) };
        Self {
            products: if quick { vec![16, 128, 512] } else { vec![16, 64, 256, 1024] },
            attention: vec![AttentionSizes { dtype: ElementType::F32, sequences, widths, heads: vec![1, 8] }],
            values: ElementType::F32,
            streamed: 16 << 20,
            in_cache: 4 << 10,
            host_copy: 0,
            collectives: powers(match (quick, processes) {
                (true, true) => &[12, 16, 20, 22],
                (true, false) => &[12, 16, 20, 24],
                (false, _) => &[12, 14, 16, 18, 20, 22, 24],
            }),
            steps: 50,
        }
    }

    /// Of ranks on GPUs, where small work does not fill one: attention in f32, which is plain and slow there, of fewer heads than
    /// in bf16; element-wise work in bf16, of more than any cache holds, and of 8 MiB.
    pub fn of_device(quick: bool) -> Self {
        let attention = |dtype, sequences: &[usize], heads: &[usize]| AttentionSizes {
            dtype,
            sequences: sequences.to_vec(),
            widths: vec![64, 128],
            heads: heads.to_vec(),
        };
        let sequences: &[usize] = if quick { &[512, 2048] } else { &[256, 1024, 4096] };
        Self {
            products: if quick { vec![128, 1024, 8192] } else { vec![128, 512, 2048, 8192] },
            attention: vec![
                attention(ElementType::F32, &sequences[..sequences.len() - 1], &[8]),
                attention(ElementType::Bf16, sequences, &[8, 64]),
            ],
            values: ElementType::Bf16,
            streamed: 64 << 20,
            in_cache: 4 << 20,
            host_copy: 64 << 20,
            collectives: powers(if quick { &[12, 16, 20, 26] } else { &[12, 14, 16, 18, 20, 22, 24, 26] }),
            steps: 50,
        }
    }
    /// Of ranks on an emulated device: as small as a calibration can be.
    pub fn of_emulator() -> Self {
        let attention = |dtype| AttentionSizes { dtype, sequences: vec![8], widths: vec![16], heads: vec![1] };
        Self {
            products: vec![8],
            attention: vec![attention(ElementType::F32), attention(ElementType::Bf16)],
            values: ElementType::Bf16,
            streamed: 256,
            in_cache: 64,
            host_copy: 256,
            collectives: vec![64, 256],
            steps: 2,
        }
    }
}
