//! DeepSeek-V3 in torchtitan: the flavors of `torchtitan/models/deepseek_v3/__init__.py`, release 0.2.2.

use quadrille_cost::native::{NarrowFormat, Numbers};
use quadrille_spec::{
    Activation, Axis, ExpertGroups, Experts, Layout, Norm, Positions, RotaryScaling, Router, RouterScores, SpecError,
};

use super::gaps::Gaps;
use super::model::Described;
use super::properties::Properties;

/// The name of the model in torchtitan.
pub(super) const NAME: &str = "deepseek_v3";

/// Sequences of at most so many tokens have plain positions, longer ones YaRN's.
const PLAIN_POSITIONS: usize = 4096;
const YARN: RotaryScaling = RotaryScaling::Yarn { factor: 40.0, low: 1.0, high: 32.0, positions: PLAIN_POSITIONS };

/// The epsilon of norms, whatever the model says.
const EPSILON: f64 = 1e-5;

/// Sizes of a flavor.
struct Flavor {
    name: &'static str,
    /// Vocabulary, columns, blocks, heads.
    sizes: [usize; 4],
    /// Width of the perceptrons of the first blocks, and number of those.
    dense: (usize, usize),
    /// Number of experts, their width, experts of a token, width of the shared one in widths of an expert.
    experts: [usize; 4],
    groups: Option<ExpertGroups>,
    router: (RouterScores, bool, f64),
    query_rows: Option<usize>,
    /// `mscale`: of YaRN's scores.
    score_scale: f64,
}

const FLAVORS: [Flavor; 3] = [
    Flavor {
        name: "16B",
        sizes: [102_400, 2048, 27, 16],
        dense: (10_944, 1),
        experts: [64, 1408, 6, 2],
        groups: None,
        router: (RouterScores::Softmax, false, 1.0),
        query_rows: None,
        score_scale: 0.7,
    },
    Flavor {
        name: "236B",
        sizes: [102_400, 5120, 60, 128],
        dense: (12_288, 1),
        experts: [160, 1536, 6, 2],
        groups: Some(ExpertGroups { count: 8, chosen: 3 }),
        router: (RouterScores::Softmax, false, 16.0),
        query_rows: Some(1536),
        score_scale: 1.0,
    },
    Flavor {
        name: "671B",
        sizes: [129_280, 7168, 61, 128],
        dense: (18_432, 3),
        experts: [256, 2048, 8, 1],
        groups: Some(ExpertGroups { count: 8, chosen: 4 }),
        router: (RouterScores::Sigmoid, true, 2.5),
        query_rows: Some(1536),
        score_scale: 1.0,
    },
];

impl Flavor {
    fn is_of(&self, described: &Described) -> bool {
        let Described { sizes, mixture: Some(mixture), qk_norm: false, properties, .. } = described else {
            return false;
        };
        let Experts { count, per_token, expert, shared, router, .. } = mixture.experts;
        let Router { scores, groups, normalize, scale, .. } = router;
        let (width, dense) = self.dense;
        let [_, expert_width, ..] = self.experts;
        let shared = shared.map_or(0, |shared| shared.width);
        let in_order = mixture.at.iter().enumerate().all(|(block, has)| *has == (block >= dense));
        self.sizes == [sizes.vocab, sizes.hidden, sizes.layers, sizes.heads]
            && sizes.ffn == width
            && [count, expert.width, per_token] == self.experts[..3]
            && shared == self.experts[3] * expert_width
            && groups == self.groups
            && (scores, normalize, scale) == self.router
            && in_order
            && self.has_attention(properties)
    }

    /// Rows and columns of latent attention; positions as they are, or YaRN's with its scores.
    fn has_attention(&self, properties: &Properties) -> bool {
        let Some(latent) = properties.latent else { return false };
        let grown = (0.1 * self.score_scale * 40.0_f64.ln() + 1.0).powi(2);
        let scale = match properties.scaling {
            RotaryScaling::None => 1.0,
            scaling if scaling == YARN => grown,
            _ => return false,
        };
        let plain = Properties {
            latent: properties.latent,
            rotary_columns: properties.rotary_columns,
            scaling: properties.scaling,
            score_scale: properties.score_scale,
            ..Properties::NONE
        };
        (latent.rows.queries, latent.rows.keys_values, latent.rows.shared_key) == (self.query_rows, 512, 64)
            && (latent.head_dim, latent.value_dim) == (192, 128)
            && properties.rotary_columns == Some(64)
            && (properties.score_scale / scale - 1.0).abs() < 1e-6
            && *properties == plain
    }
}

/// The flavor of a model, if it is one of DeepSeek-V3's.
pub(super) fn flavor(described: &Described) -> Option<&'static str> {
    let model = &described.sizes;
    let is_of_family = model.norm == Norm::Rms
        && model.positions == Positions::Rotary
        && model.rotary_base == 10_000.0
        && model.activation == Activation::Swiglu
        && model.dropout == 0.0
        && !model.biases
        && !model.tied_head;
    FLAVORS.iter().find(|flavor| is_of_family && flavor.is_of(described)).map(|flavor| flavor.name)
}

/// Names what the flavors compute in another way.
///
/// # Errors
/// Cut sequences, which flex attention does not take.
pub(super) fn check(
    described: &Described,
    layout: &Layout,
    tensor: usize,
    numbers: Numbers,
    gaps: &mut Gaps,
) -> Result<(), SpecError> {
    let context = layout.grid.size(Axis::Context);
    if context > 1 {
        let rule = "torchtitan's flavors of deepseek_v3 have flex attention, which takes whole sequences";
        return Err(SpecError::invalid("context", context, rule, "use context=1, or export to megatron"));
    }
    let epsilon = described.sizes.norm_epsilon;
    if epsilon != EPSILON {
        gaps.add(format!("norm_epsilon = {epsilon}"), format!("norms have {EPSILON}"));
    }
    let is_scaled = described.properties.scaling != RotaryScaling::None;
    match (is_scaled, layout.seq_len > PLAIN_POSITIONS) {
        (true, false) => gaps.add("rotary_scaling = yarn", "sequences of at most 4096 tokens have plain positions"),
        (false, true) => {
            gaps.add("rotary positions", "sequences of more than 4096 tokens have YaRN's, by a factor of 40")
        }
        _ => {}
    }
    if tensor > 1 && numbers.products == Some(NarrowFormat::Fp8) {
        let rule = "torchtitan does not cut deepseek_v3 with a scale for a tensor (Float8 tensorwise TP)";
        return Err(SpecError::invalid("products", NarrowFormat::Fp8, rule, "use x=1, or mxfp8"));
    }
    Ok(())
}
