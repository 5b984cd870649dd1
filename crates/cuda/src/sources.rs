//! The sources of kernels, as they are compiled at run time.

use crate::array::Format;

/// A file of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The file's name.
    pub name: &'static str,
    /// What is in it.
    pub text: &'static str,
}

/// Files of the folder of kernels, with what is in them.
macro_rules! files {
    ($($name:literal)*) => {
        &[$(Source { name: $name, text: include_str!(concat!("kernels/", $name)) }),*]
    };
}

/// All files of kernels.
pub const SOURCES: &[Source] = files!(
    "activation.cu" "adamw.cu" "attention_backward.cu" "attention_forward.cu" "cached.cu" "collectives.cu" "columns.cu"
    "cross_entropy.cu" "elementwise.cu" "embedding.cu" "gated.cu" "head_norm.cu" "heads.cu" "kept.cu"
    "keys_values.cu" "latent.cu" "mixed_attention_forward.cu" "mixed_attention_forward_wgmma.cu" "mixed_attention_keys.cu"
    "mixed_attention_keys_wgmma.cu" "mixed_attention_queries.cu" "mixed_attention_queries_wgmma.cu"
    "mixed_product_wgmma.cu" "norm.cu" "residual.cu" "rms_norm.cu" "rotary.cu" "route.cu" "route_backward.cu"
    "router_losses.cu" "router_product.cu" "slots.cu" "spread.cu" "squared_error.cu"
);

/// What they include.
pub const HEADERS: &[Source] = files!(
    "attention.cuh" "attention_scores.cuh" "attention_tiles.cuh" "cap.cuh" "column_sums.cuh" "curves.cuh" "mma.cuh"
    "norm.cuh" "prelude.cuh" "random.cuh" "router.cuh" "rows.cuh" "wgmma.cuh"
);

impl Source {
    /// Whether it has kernels of a format: files for one alone say so by their names.
    pub fn has(self, format: Format) -> bool {
        format == Format::Mixed || !self.name.starts_with("mixed_")
    }

    /// The architecture that alone has its instructions, if there is one: files say so by their names.
    pub fn architecture(self) -> Option<&'static str> {
        self.name.ends_with("_wgmma.cu").then_some("sm_90a")
    }

    /// The names of its kernels, without that of a format.
    pub fn kernels(self) -> impl Iterator<Item = &'static str> {
        self.text.lines().filter_map(|line| line.strip_prefix("KERNEL(")?.split(')').next())
    }

    /// The file that has a kernel.
    pub(crate) fn of(kernel: &str) -> Option<Self> {
        SOURCES.iter().copied().find(|source| source.kernels().any(|name| name == kernel))
    }
}

/// The name of a kernel's entry point.
pub(crate) fn entry_point(kernel: &str, format: Format) -> String {
    format!("{kernel}_{}", format.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn all_files_of_the_folder_are_listed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/kernels");
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let listed = SOURCES.iter().chain(HEADERS).map(|source| source.name.to_owned());
        assert_eq!(listed.collect::<BTreeSet<_>>(), entries.collect());
    }

    #[test]
    fn every_kernel_is_in_one_file() {
        let mut seen = BTreeSet::new();
        for source in SOURCES {
            for kernel in source.kernels() {
                assert!(seen.insert(kernel), "{kernel} is in {} and in another file", source.name);
                assert_eq!(Source::of(kernel), Some(*source));
            }
        }
        assert!(seen.contains("attention_forward") && Source::of("attention").is_none());
    }
}
