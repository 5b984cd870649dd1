//! Run-time choice of the instruction set.
//!
//! A kernel's inner loops are plain Rust, inlined into one of three wrappers, so that the
//! compiler vectorises the same source for AVX-512, for AVX2 with FMA, and for the target's
//! baseline. Everything called inside must be `#[inline(always)]`.

use std::sync::OnceLock;

/// The instruction set that the kernels use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

/// The best level of this processor, detected once.
#[inline]
pub(crate) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(detect)
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    if !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")) {
        return Level::Portable;
    }
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    if avx512 { Level::Avx512 } else { Level::Avx2 }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Portable
}

/// Whether the processor multiplies `bf16` itself, beside all of [`Level::Avx512`].
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn bf16_instructions() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    *PRESENT.get_or_init(|| level() == Level::Avx512 && is_x86_feature_detected!("avx512bf16"))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn in_avx512<R>(body: impl FnOnce() -> R) -> R {
    body()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn in_avx2<R>(body: impl FnOnce() -> R) -> R {
    body()
}

/// Runs `body` compiled for the best instruction set of this processor.
#[inline(always)]
pub(crate) fn vectorised<R>(body: impl FnOnce() -> R) -> R {
    match level() {
        // SAFETY: `level` returns this only where all of the wrapper's features are present.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { in_avx512(body) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { in_avx2(body) },
        Level::Portable => body(),
    }
}
