//! What blocks have beyond [`Classic`](quadrille_spec::Classic) that some framework has words for.

use quadrille_spec::{Activation, Attention, Block, FeedForward, Latent, Model, RotaryScaling};

/// Properties of attention, norms and perceptrons, as the first block has them; usual ones where it has none.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Properties {
    /// Whether queries, keys and values have biases where nothing else has.
    pub qkv_bias: bool,
    /// The function of perceptrons, where it is the exact GELU or the squared rectifier.
    pub activation: Option<Activation>,
    /// Columns of a head that turn, if that are not all.
    pub rotary_columns: Option<usize>,
    /// How rotary frequencies are scaled.
    pub scaling: RotaryScaling,
    /// What scores are multiplied with beside the usual.
    pub score_scale: f64,
    /// Windows of one length.
    pub window: Option<Window>,
    /// Latent attention.
    pub latent: Option<LatentHeads>,
    /// Whether gammas are stored as distances from 1.
    pub norm_offset: bool,
}

/// A window, and the blocks that have it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Window {
    /// Positions that a position attends to, itself among them.
    pub positions: usize,
    /// By block, whether it has the window.
    pub at: Vec<bool>,
}

/// Latent attention with the columns of its heads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LatentHeads {
    /// The narrow rows.
    pub rows: Latent,
    /// Columns of a query and of a key.
    pub head_dim: usize,
    /// Columns of a value.
    pub value_dim: usize,
}

impl LatentHeads {
    fn of(attention: &Attention) -> Option<Self> {
        let Attention { latent, head_dim, value_dim, .. } = *attention;
        latent.map(|rows| Self { rows, head_dim, value_dim })
    }
}

impl Properties {
    /// The usual ones.
    pub const NONE: Self = Self {
        qkv_bias: false,
        activation: None,
        rotary_columns: None,
        scaling: RotaryScaling::None,
        score_scale: 1.0,
        window: None,
        latent: None,
        norm_offset: false,
    };

    /// Those of the model's first block, and its windows.
    pub fn of(model: &Model) -> Self {
        let Block { attention, feed_forward, norm, .. } = *model.blocks.first();
        let activation = feed_forward.dense().map(|perceptron| perceptron.activation);
        let dense = model.blocks.kinds().iter().all(|block| block.feed_forward.dense().is_some());
        let biased = feed_forward.perceptrons().any(|perceptron| perceptron.up_bias || perceptron.down_bias);
        let rotary = attention.rotary;
        Self {
            qkv_bias: attention.qkv_bias && !attention.projection_bias && !biased,
            activation: activation.filter(|it| dense && [Activation::GeluErf, Activation::Relu2].contains(it)),
            rotary_columns: rotary.map(|rotary| rotary.columns).filter(|columns| *columns != attention.head_dim),
            scaling: rotary.map_or(RotaryScaling::None, |rotary| rotary.scaling),
            score_scale: attention.score_scale,
            window: window(model),
            latent: LatentHeads::of(&attention),
            // Megatron's switch is for all norms.
            norm_offset: norm.offset && model.final_norm.offset && attention.qk_norm.is_none_or(|it| it.rule.offset),
        }
    }

    /// The model without them. What differs from them in another block stays, to be refused.
    pub fn taken_off(&self, model: &Model) -> Model {
        let blocks = model.blocks.each(|block| {
            self.take_off_attention(&mut block.attention, model.hidden);
            block.norm.offset &= !self.norm_offset;
            if let Some(rule) = block.attention.qk_norm.as_mut() {
                rule.rule.offset &= !self.norm_offset;
            }
            if let FeedForward::Dense(perceptron) = &mut block.feed_forward
                && Some(perceptron.activation) == self.activation
            {
                perceptron.activation = Activation::Gelu;
            }
        });
        let mut plain = Model { blocks, ..model.clone() };
        plain.final_norm.offset &= !self.norm_offset;
        plain
    }

    fn take_off_attention(&self, attention: &mut Attention, hidden: usize) {
        attention.qkv_bias &= !self.qkv_bias;
        if attention.score_scale == self.score_scale {
            attention.score_scale = 1.0;
        }
        if self.window.as_ref().map(|window| window.positions) == attention.window {
            attention.window = None;
        }
        if let Some(rotary) = attention.rotary.as_mut() {
            if rotary.scaling == self.scaling {
                rotary.scaling = RotaryScaling::None;
            }
            if Some(rotary.columns) == self.rotary_columns {
                rotary.columns = attention.head_dim;
            }
        }
        if self.latent.is_some() && LatentHeads::of(attention) == self.latent {
            let usual = hidden / attention.heads;
            attention.latent = None;
            (attention.head_dim, attention.value_dim) = (usual, usual);
            attention.rotary.iter_mut().for_each(|rotary| rotary.columns = usual);
        }
    }

    /// Whether latent attention turns with frequencies as they are, which Megatron's fused kernel does not.
    pub fn turns_unscaled_latents(&self) -> bool {
        self.latent.is_some() && self.scaling == RotaryScaling::None
    }
}

/// The window of blocks that have one, if those have the same.
fn window(model: &Model) -> Option<Window> {
    let mut lengths = model.blocks.kinds().iter().filter_map(|block| block.attention.window);
    let positions = lengths.next()?;
    let at = model.blocks.iter().map(|block| block.attention.window.is_some()).collect();
    lengths.all(|other| other == positions).then_some(Window { positions, at })
}
