//! Random kinds of layers: the three families of models, and mixes of them.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use quadrille_spec::{Activation, Classic, Model, Norm, Positions};

/// What a model is made of, beside its sizes.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    /// Picks the numbers in a patch; none: tokens.
    patch_values: Option<Index>,
    norm: Norm,
    positions: Positions,
    activation: Activation,
    causal: bool,
    /// Picks the heads of keys and values; none: as many as heads.
    kv_heads: Option<Index>,
    rotary_base: f64,
}

impl Family {
    pub(crate) const GPT: Self = Self {
        patch_values: None,
        norm: Norm::Layer,
        positions: Positions::Learned,
        activation: Activation::Gelu,
        causal: true,
        kv_heads: None,
        rotary_base: 10_000.0,
    };

    /// What the width of a head is a multiple of.
    pub(crate) fn head_unit(&self) -> usize {
        match self.positions {
            Positions::Learned | Positions::None => 1,
            Positions::Rotary => 2,
        }
    }

    /// `gpt` made of this on a mesh of x times y.
    pub(crate) fn of(&self, gpt: Classic, x: usize, y: usize) -> Model {
        // As many keys on every rank along x, or every key on as many ranks.
        let heads = (1..=gpt.heads).filter(|n| gpt.heads.is_multiple_of(*n));
        let kv_heads: Vec<usize> = heads.filter(|n| n.is_multiple_of(x) || x.is_multiple_of(*n)).collect();
        // Primes, which hardly any axis divides, and what x or both axes divide.
        let values = [3, 7, 11, 3 * x, x * y, 3 * x * y];
        let classic = Classic {
            kv_heads: self.kv_heads.map_or(gpt.heads, |index| *index.get(&kv_heads)),
            vocab: if self.patch_values.is_some() { 0 } else { gpt.vocab },
            patch_values: self.patch_values.map(|index| *index.get(&values)),
            tied_head: gpt.tied_head && self.patch_values.is_none(),
            norm: self.norm,
            positions: self.positions,
            rotary_base: self.rotary_base,
            activation: self.activation,
            causal: self.causal,
            ..gpt
        };
        classic.model()
    }
}

/// GPT, Llama, the vision transformer, and any mix of their layers.
pub(crate) fn families() -> impl Strategy<Value = Family> {
    // A low base, too, so that the last pair of a head turns noticeably within few positions.
    let drawn = (any::<[bool; 6]>(), any::<Index>(), any::<Index>(), select(vec![10.0, 10_000.0]));
    let mixed =
        drawn.prop_map(|([patches, rms, rotary, swiglu, causal, grouped], patch_values, kv_heads, rotary_base)| {
            Family {
                patch_values: patches.then_some(patch_values),
                norm: if rms { Norm::Rms } else { Norm::Layer },
                positions: if rotary { Positions::Rotary } else { Positions::Learned },
                activation: if swiglu { Activation::Swiglu } else { Activation::Gelu },
                causal,
                kv_heads: grouped.then_some(kv_heads),
                rotary_base,
            }
        });
    let llama = any::<Index>().prop_map(|kv_heads| Family {
        norm: Norm::Rms,
        positions: Positions::Rotary,
        activation: Activation::Swiglu,
        kv_heads: Some(kv_heads),
        ..Family::GPT
    });
    let vit = any::<Index>().prop_map(|values| Family { patch_values: Some(values), causal: false, ..Family::GPT });
    prop_oneof![1 => Just(Family::GPT), 2 => llama, 1 => vit, 2 => mixed]
}
