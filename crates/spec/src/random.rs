//! Counter-based random numbers (Philox 4x32-10; Salmon et al., SC 2011), keyed by what they are for.
//!
//! A draw depends only on (seed, purpose, index), never on the layout or on the order of draws: any rank can
//! generate any tile of a weight, and any mask element, without the others.

/// An endless table of random numbers for one purpose, e.g. the initial values of one parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomStream {
    key: [u32; 2],
}

impl RandomStream {
    /// The stream of `purpose` (a parameter's name, "dropout block 3 attention", ...) under `seed`.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a over the purpose, then SplitMix64's finaliser over both, so that near seeds give far keys.
        let name = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        let mixed = mix(mix(seed).wrapping_add(name));
        Self { key: [mixed as u32, (mixed >> 32) as u32] }
    }

    /// A stream of its own for each number, e.g. per training step.
    pub fn substream(self, number: u64) -> Self {
        let key = u64::from(self.key[0]) | u64::from(self.key[1]) << 32;
        let mixed = mix(key ^ mix(number.wrapping_add(0x9e37_79b9_7f4a_7c15)));
        Self { key: [mixed as u32, (mixed >> 32) as u32] }
    }

    /// Four independent 32-bit words at `counter`.
    #[inline]
    pub fn words(self, counter: u64) -> [u32; 4] {
        let mut state = [counter as u32, (counter >> 32) as u32, 0, 0];
        let mut key = self.key;
        for _ in 0..10 {
            let low = u64::from(state[0]) * 0xd251_1f53;
            let high = u64::from(state[2]) * 0xcd9e_8d57;
            state = [
                (high >> 32) as u32 ^ state[1] ^ key[0],
                high as u32,
                (low >> 32) as u32 ^ state[3] ^ key[1],
                low as u32,
            ];
            key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
        }
        state
    }

    /// The 32-bit word at `index` (four indices share a counter).
    #[inline]
    pub fn word(self, index: u64) -> u32 {
        self.words(index / 4)[(index % 4) as usize]
    }

    /// A number in `0..bound` at `index`, without noticeable bias for bounds far below 2^64.
    pub fn below(self, index: u64, bound: u64) -> u64 {
        let [a, b, ..] = self.words(index);
        let wide = u128::from(u64::from(a) | u64::from(b) << 32) * u128::from(bound);
        (wide >> 64) as u64
    }

    /// The standard normal numbers at indices `4 * counter .. 4 * counter + 4` (Box-Muller).
    pub fn normals(self, counter: u64) -> [f64; 4] {
        let [a, b, c, d] = self.words(counter);
        let [n0, n1] = box_muller(a, b);
        let [n2, n3] = box_muller(c, d);
        [n0, n1, n2, n3]
    }

    /// The standard normal number at `index`.
    pub fn normal(self, index: u64) -> f64 {
        self.normals(index / 4)[(index % 4) as usize]
    }
}

/// A dropout mask: keeps an element with probability `1 - rate`, decided by its logical index alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    stream: RandomStream,
    threshold: u32,
    /// What kept elements are multiplied with, `1 / (1 - rate)`.
    pub scale: f64,
}

impl Dropout {
    /// The mask of `purpose` ("embedding", "block 0 attention", ...) in training step `step` under `seed`;
    /// `rate` in [0, 1).
    pub fn new(seed: u64, purpose: &str, step: u64, rate: f64) -> Self {
        let stream = RandomStream::new(seed, &format!("dropout {purpose}")).substream(step);
        Self { stream, threshold: (rate * 4_294_967_296.0) as u32, scale: 1.0 / (1.0 - rate) }
    }

    /// The key of the mask's words, for devices that draw by themselves: an element stays if Philox 4x32-10 under this
    /// key, at counter `index / 4`, gives a word number `index % 4` of at least [`threshold`](Self::threshold).
    pub fn key(&self) -> [u32; 2] {
        self.stream.key
    }

    /// The least word of an element that stays.
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// Whether the element at the logical `index` stays. For activations the index is
    /// `token_row * columns + column`, with rows counted over the global batch of the step; for attention
    /// `((sequence * heads + head) * seq_len + query) * seq_len + key`.
    #[inline]
    pub fn keeps(&self, index: u64) -> bool {
        self.stream.word(index) >= self.threshold
    }
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn box_muller(a: u32, b: u32) -> [f64; 2] {
    // (a + 1) / 2^32 lies in (0, 1]: the logarithm stays finite.
    let radius = (-2.0 * ((f64::from(a) + 1.0) / 4_294_967_296.0).ln()).sqrt();
    let (sin, cos) = (std::f64::consts::TAU * (f64::from(b) / 4_294_967_296.0)).sin_cos();
    [radius * cos, radius * sin]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_reference_words() {
        // Known answer of Random123: counter 0, key 0.
        let stream = RandomStream { key: [0, 0] };
        assert_eq!(stream.words(0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }

    #[test]
    fn normals_have_mean_zero_and_variance_one() {
        let stream = RandomStream::new(7, "test");
        let draws: Vec<f64> = (0..100_000).map(|i| stream.normal(i)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn dropout_keeps_the_stated_share() {
        let mask = Dropout::new(1, "test", 3, 0.25);
        let kept = (0..100_000).filter(|&i| mask.keeps(i)).count() as f64 / 1e5;
        assert!((kept - 0.75).abs() < 0.01, "{kept}");
    }

    #[test]
    fn key_and_threshold_say_what_a_mask_keeps() {
        let mask = Dropout::new(1, "test", 3, 0.25);
        let stream = RandomStream { key: mask.key() };
        for index in 0..1000 {
            let word = stream.words(index / 4)[(index % 4) as usize];
            assert_eq!(mask.keeps(index), word >= mask.threshold());
        }
    }

    #[test]
    fn purposes_seeds_and_steps_differ() {
        let words = [
            RandomStream::new(1, "a").word(0),
            RandomStream::new(1, "b").word(0),
            RandomStream::new(2, "a").word(0),
            RandomStream::new(1, "a").substream(1).word(0),
            RandomStream::new(1, "a").substream(2).word(0),
        ];
        for (i, a) in words.iter().enumerate() {
            assert!(words[..i].iter().all(|b| a != b));
        }
    }
}
