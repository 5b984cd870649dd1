//! A model as frameworks take one: blocks that are alike, but for experts in the place of some perceptrons.

use quadrille_spec::{Block, Classic, Experts, FeedForward, Model, NormedOver, Perceptron, QueryKeyNorm, SpecError};

use super::properties::Properties;

/// What is exported of a model, for frameworks that know more than [`Classic`].
pub(super) struct Described {
    /// Of models with experts the perceptron is that of the other blocks, or, where all have experts, as wide as an expert.
    pub sizes: Classic,
    /// Columns of a head that are not `hidden / heads`.
    pub head_dim: Option<usize>,
    /// Whether every head's query and every key is normed, as the residual stream is.
    pub qk_norm: bool,
    /// Experts, and the blocks that have them.
    pub mixture: Option<Mixture>,
    /// What attention, norms and perceptrons have besides.
    pub properties: Properties,
}

/// One kind of experts.
pub(super) struct Mixture {
    pub experts: Experts,
    /// By block, whether it has them.
    pub at: Vec<bool>,
}

impl Described {
    /// Of a model for `who`, who knows these properties, and refuses others.
    pub fn new(model: &Model, who: &str, properties: Properties) -> Result<Self, SpecError> {
        let mixture = mixture(model, who)?;
        let plain = plain(&properties.taken_off(model), mixture.as_ref().map(|mixture| &mixture.experts));
        plain.check_classic(who)?;
        let sizes = plain.classic();
        let attention = model.blocks.first().attention;
        let usual = properties.latent.is_some() || attention.head_dim == sizes.head_dim();
        let head_dim = (!usual).then_some(attention.head_dim);
        Ok(Self { sizes, head_dim, qk_norm: attention.qk_norm.is_some(), mixture, properties })
    }

    /// Whether Megatron is to norm queries and keys, or the narrow rows of latent attention, which always are.
    pub fn norms_keys(&self) -> bool {
        self.qk_norm || self.properties.latent.is_some()
    }
}

fn mixture(model: &Model, who: &str) -> Result<Option<Mixture>, SpecError> {
    let mut kinds = model.blocks.kinds().iter().filter_map(|block| block.feed_forward.experts());
    let Some(&experts) = kinds.next() else { return Ok(None) };
    if kinds.any(|other| *other != experts) {
        let rule = format!("{who} knows one kind of experts in a model");
        let remedy = "give all blocks with experts the same fields";
        return Err(SpecError::invalid("blocks", "several kinds of experts", rule, remedy));
    }
    let at = model.blocks.iter().map(|block| block.feed_forward.experts().is_some()).collect();
    Ok(Some(Mixture { experts, at }))
}

/// The model without what [`Described`] says beside its sizes. What differs between blocks stays, to be refused.
fn plain(model: &Model, experts: Option<&Experts>) -> Model {
    let Block { attention: first, norm, .. } = *model.blocks.first();
    let of_heads = QueryKeyNorm { rule: norm, over: NormedOver::Head };
    let usual = model.hidden / first.heads;
    let dense = model.blocks.kinds().iter().find_map(|block| block.feed_forward.dense());
    let blocks = model.blocks.each(|block| {
        let attention = &mut block.attention;
        if attention.qk_norm == first.qk_norm && attention.qk_norm == Some(of_heads) {
            attention.qk_norm = None;
        }
        // Columns of a head say nothing of values of another width, which are refused.
        if attention.head_dim == first.head_dim && attention.value_dim == first.head_dim {
            for rotary in attention.rotary.iter_mut().filter(|rotary| rotary.columns == first.head_dim) {
                rotary.columns = usual;
            }
            (attention.head_dim, attention.value_dim) = (usual, usual);
        }
        if let (FeedForward::Experts(_), Some(Experts { expert, .. })) = (block.feed_forward, experts) {
            let biases = attention.qkv_bias;
            let alone = Perceptron { up_bias: biases, down_bias: biases, ..*expert };
            let activation = expert.activation;
            block.feed_forward = FeedForward::Dense(Perceptron { activation, ..dense.copied().unwrap_or(alone) });
        }
    });
    Model { blocks, ..model.clone() }
}
