//! A block as the fields of a model's file say it.

use super::{MAX_FACTOR, MAX_FFN, MAX_HEAD_DIM, MAX_HEADS, MAX_HIDDEN, MAX_SEQ_LEN, ModelFile};
use crate::choices::QkNorm;
use crate::classic::ROTARY_BASE;
use crate::toml_text::check_size;
use crate::{
    Attention, Block, Latent, Norm, NormPlace, Normalization, Perceptron, Positions, QueryKeyNorm, Residual,
    ResidualOrder, Rotary, RotaryRule, RotaryScaling, SpecError,
};

impl ModelFile {
    /// What the fields say of a block.
    ///
    /// # Errors
    /// A value that breaks its rule.
    pub(super) fn block(&self) -> Result<Block, SpecError> {
        Ok(Block {
            attention: self.attention()?,
            feed_forward: self.feed_forward()?,
            norm: self.normalization()?,
            norm_place: self.norm_place.unwrap_or(NormPlace::Before),
            residual: Residual {
                order: self.residual.unwrap_or(ResidualOrder::Sequential),
                scale: factor("residual_scale", self.residual_scale.unwrap_or(1.0), 1.0 / MAX_FACTOR)?,
            },
        })
    }

    fn attention(&self) -> Result<Attention, SpecError> {
        let (heads, head_dim) = self.heads()?;
        let value_dim = self.value_dim(heads, head_dim)?;
        let latent = self.latent(head_dim)?;
        let kv_heads = self.kv_heads.unwrap_or(heads);
        check_size("kv_heads", kv_heads, heads)?;
        SpecError::check_divides("kv_heads", kv_heads, "heads", heads)?;
        let causal = self.causal.unwrap_or(self.patch_values.is_none());
        let qk_norm = self.qk_norm.and_then(QkNorm::norm);
        let normed = |(kind, over)| self.normalization_of(kind).map(|rule| QueryKeyNorm { rule, over });
        Ok(Attention {
            heads,
            kv_heads,
            head_dim,
            value_dim,
            latent,
            causal,
            window: self.window(causal)?,
            score_scale: factor("score_scale", self.score_scale.unwrap_or(1.0), 1.0 / MAX_FACTOR)?,
            cap: cap("attention_cap", self.attention_cap)?,
            rotary: self.rotary(head_dim, latent)?,
            qk_norm: qk_norm.map(normed).transpose()?,
            qkv_bias: self.qkv_bias.unwrap_or(self.biases && latent.is_none()),
            projection_bias: self.projection_bias.unwrap_or(self.biases),
        })
    }

    /// How many heads, and how wide each is.
    fn heads(&self) -> Result<(usize, usize), SpecError> {
        let Some(head_dim) = self.head_dim else {
            check_size("heads", self.heads, self.hidden)?;
            SpecError::check_divides("heads", self.heads, "hidden", self.hidden)?;
            return Ok((self.heads, self.hidden / self.heads));
        };
        check_size("heads", self.heads, MAX_HEADS)?;
        check_size("head_dim", head_dim, MAX_HEAD_DIM)?;
        let width = self.heads.saturating_mul(head_dim);
        if width > MAX_HEADS {
            let rule =
                format!("all heads together have at most {MAX_HEADS} columns, and {} heads have {width}", self.heads);
            return Err(SpecError::invalid("head_dim", head_dim, rule, "use a smaller one, or fewer heads"));
        }
        Ok((self.heads, head_dim))
    }

    /// Columns of a value.
    fn value_dim(&self, heads: usize, head_dim: usize) -> Result<usize, SpecError> {
        let Some(value_dim) = self.value_dim else { return Ok(head_dim) };
        check_size("value_dim", value_dim, MAX_HEAD_DIM)?;
        let width = heads.saturating_mul(value_dim);
        if width > MAX_HEADS {
            let rule = format!("all heads together give at most {MAX_HEADS} columns, and {heads} heads give {width}");
            return Err(SpecError::invalid("value_dim", value_dim, rule, "use a smaller one, or fewer heads"));
        }
        Ok(value_dim)
    }

    /// Latent attention, if that is what the fields say.
    fn latent(&self, head_dim: usize) -> Result<Option<Latent>, SpecError> {
        let keys_values = self.key_value_latent.unwrap_or(0);
        let [queries, shared] = [self.query_latent, self.shared_key].map(|width| width.filter(|width| *width > 0));
        if keys_values == 0 {
            return match [("query_latent", queries), ("shared_key", shared)].into_iter().find(|it| it.1.is_some()) {
                None => Ok(None),
                Some((field, value)) => {
                    let rule = "it is said of latent attention, which `model.key_value_latent` makes of attention";
                    Err(SpecError::invalid(
                        field,
                        value.unwrap_or(0),
                        rule,
                        "give `model.key_value_latent`=512, or leave it out",
                    ))
                }
            };
        }
        check_size("key_value_latent", keys_values, MAX_HIDDEN)?;
        queries.map_or(Ok(()), |width| check_size("query_latent", width, MAX_HIDDEN))?;
        if let Some(kv_heads) = self.kv_heads.filter(|kv_heads| *kv_heads != self.heads) {
            let rule = format!("in latent attention each of the {} heads has a key", self.heads);
            return Err(SpecError::invalid("kv_heads", kv_heads, rule, format!("use {}", self.heads)));
        }
        if self.qkv_bias == Some(true) {
            let rule = "queries, keys and values of latent attention have no biases";
            return Err(SpecError::invalid("qkv_bias", true, rule, "use false"));
        }
        if head_dim < 2 {
            let rule = "all heads share a part of a key's columns, so that there are 2 at least";
            return Err(SpecError::invalid("head_dim", head_dim, rule, "use a larger one"));
        }
        let shared_key = shared.unwrap_or(0);
        if !(1..head_dim).contains(&shared_key) {
            let rule =
                format!("it is a part of a key's {head_dim} columns (`model.head_dim`), the one that all heads share");
            let remedy = format!("use a number above 0 and below {head_dim}");
            return Err(SpecError::invalid("shared_key", shared_key, rule, remedy));
        }
        Ok(Some(Latent { queries, keys_values, shared_key }))
    }

    fn window(&self, causal: bool) -> Result<Option<usize>, SpecError> {
        let window = self.window.filter(|window| *window > 0);
        match window {
            Some(window) if !causal => {
                let rule = "a window reaches back from a position, and without a causal mask each attends to all";
                Err(SpecError::invalid("window", window, rule, "use causal = true, or window = 0"))
            }
            _ => Ok(window),
        }
    }

    /// The turning of a head's columns; of latent attention, if nothing else is said, of those that all heads share.
    fn rotary(&self, head_dim: usize, latent: Option<Latent>) -> Result<Option<Rotary>, SpecError> {
        let base = self.rotary_base.unwrap_or(ROTARY_BASE);
        if !(1.0..=1e12).contains(&base) {
            return Err(SpecError::invalid("rotary_base", base, "it must lie in 1..=1e12", "use e.g. 10000 or 500000"));
        }
        if self.positions != Positions::Rotary {
            return self.check_scaling_of(RotaryRule::None).map(|()| None);
        }
        let (columns, shared) = match (self.rotary_dim, latent) {
            (None, Some(latent)) => (latent.shared_key, true),
            (None | Some(0), _) => (head_dim, false),
            (Some(columns), _) => (columns, false),
        };
        if shared && !columns.is_multiple_of(2) {
            let rule =
                "rotary positions turn pairs of the numbers that all heads share, if `model.rotary_dim` is left out";
            return Err(SpecError::invalid(
                "shared_key",
                columns,
                rule,
                "use an even number, or give `model.rotary_dim`",
            ));
        }
        if columns > head_dim || self.rotary_dim.is_some() && !columns.is_multiple_of(2) {
            let rule = format!("pairs of a head's numbers turn, and a head has {head_dim}");
            return Err(SpecError::invalid("rotary_dim", columns, rule, "use an even number, or 0 for all"));
        }
        if !columns.is_multiple_of(2) {
            let rule = format!("rotary positions turn pairs of a head's numbers, and a head has {head_dim}");
            return Err(SpecError::invalid("positions", "rotary", rule, "use hidden / heads that is even"));
        }
        Ok(Some(Rotary { base, columns, scaling: self.rotary_scaling()? }))
    }

    fn rotary_scaling(&self) -> Result<RotaryScaling, SpecError> {
        let rule = self.rotary_scaling.unwrap_or(RotaryRule::None);
        self.check_scaling_of(rule)?;
        if rule == RotaryRule::None {
            return Ok(RotaryScaling::None);
        }
        let Some(divisor) = self.rotary_factor else {
            let rule = format!("rotary_scaling = {rule} divides frequencies by it");
            return Err(SpecError::invalid("rotary_factor", "none", rule, "give it, e.g. 8"));
        };
        let factor = factor("rotary_factor", divisor, 1.0)?;
        if rule == RotaryRule::Linear {
            return Ok(RotaryScaling::Linear { factor });
        }
        let usual_high = if rule == RotaryRule::Yarn { 32.0 } else { 4.0 };
        let low = self.rotary_low.unwrap_or(1.0);
        let high = self.rotary_high.unwrap_or(usual_high);
        let positions = self.rotary_positions.unwrap_or(8192);
        check_size("rotary_positions", positions, MAX_SEQ_LEN)?;
        // Between equal ends YaRN mixes one pair; Llama's rule would divide by their difference.
        let (apart, most) = if rule == RotaryRule::Yarn { (low <= high, "at most") } else { (low < high, "below") };
        if !(low > 0.0 && apart && high <= MAX_FACTOR) {
            let rule = format!("it lies above 0 and is {most} rotary_high = {high}, which is at most {MAX_FACTOR}");
            return Err(SpecError::invalid("rotary_low", low, rule, format!("use e.g. 1 and {usual_high}")));
        }
        Ok(match rule {
            RotaryRule::Yarn => RotaryScaling::Yarn { factor, low, high, positions },
            _ => RotaryScaling::Llama3 { factor, low, high, positions },
        })
    }

    /// Says nothing any more of what a rule to scale frequencies does not have.
    pub(super) fn leave_rotary_scaling(&mut self, rule: RotaryRule) {
        if matches!(rule, RotaryRule::None | RotaryRule::Linear) {
            (self.rotary_low, self.rotary_high, self.rotary_positions) = (None, None, None);
        }
        if rule == RotaryRule::None {
            (self.rotary_scaling, self.rotary_factor) = (None, None);
        }
    }

    /// Refuses what is said of scaled frequencies that this rule does not have.
    fn check_scaling_of(&self, rule: RotaryRule) -> Result<(), SpecError> {
        let has_factor = rule != RotaryRule::None;
        let has_ends = matches!(rule, RotaryRule::Llama3 | RotaryRule::Yarn);
        let text = |value: Option<f64>| value.map(|it| it.to_string());
        let said = [
            ("rotary_scaling", false, self.rotary_scaling.filter(|it| *it != rule).map(|it| it.to_string())),
            ("rotary_factor", has_factor, text(self.rotary_factor)),
            ("rotary_low", has_ends, text(self.rotary_low)),
            ("rotary_high", has_ends, text(self.rotary_high)),
            ("rotary_positions", has_ends, self.rotary_positions.map(|it| it.to_string())),
        ];
        let without = said.into_iter().filter(|(_, has, _)| !has);
        let Some((field, value)) = without.into_iter().find_map(|(field, _, value)| Some((field, value?))) else {
            return Ok(());
        };
        let (rule, remedy) = match rule {
            _ if self.positions != Positions::Rotary => {
                ("it is said of rotary positions, and there are none", "leave it out, or use positions = rotary")
            }
            RotaryRule::Linear => {
                ("linear scaling has rotary_factor alone", "leave it out, or use another rotary_scaling")
            }
            _ => {
                ("it is said of scaled frequencies, and there are none", "leave it out, or give `model.rotary_scaling`")
            }
        };
        Err(SpecError::invalid(field, value, rule, remedy))
    }

    pub(super) fn perceptron(&self) -> Result<Perceptron, SpecError> {
        let width = self.ffn.unwrap_or(4 * self.hidden);
        check_size("ffn", width, MAX_FFN)?;
        Ok(Perceptron {
            width,
            activation: self.activation,
            up_bias: self.up_bias.unwrap_or(self.biases),
            down_bias: self.down_bias.unwrap_or(self.biases),
        })
    }

    /// The norms of the stream.
    pub(super) fn normalization(&self) -> Result<Normalization, SpecError> {
        self.normalization_of(self.norm)
    }

    fn normalization_of(&self, kind: Norm) -> Result<Normalization, SpecError> {
        let epsilon = self.norm_epsilon;
        if !(epsilon > 0.0 && epsilon <= 1.0) {
            return Err(SpecError::invalid("norm_epsilon", epsilon, "it must lie in (0, 1]", "use e.g. 1e-5"));
        }
        Ok(Normalization { kind, epsilon, offset: self.norm_offset.unwrap_or(false) })
    }
}

/// A number that something is multiplied with or divided by.
pub(super) fn factor(field: &str, value: f64, least: f64) -> Result<f64, SpecError> {
    if (least..=MAX_FACTOR).contains(&value) {
        return Ok(value);
    }
    Err(SpecError::invalid(
        field,
        value,
        format!("it must lie in {least}..={MAX_FACTOR}"),
        "use e.g. 1, or leave it out",
    ))
}

/// A soft cap; 0 is none.
pub(super) fn cap(field: &str, value: Option<f64>) -> Result<Option<f64>, SpecError> {
    match value.filter(|cap| *cap != 0.0) {
        Some(cap) if !(0.1..=1e4).contains(&cap) => {
            Err(SpecError::invalid(field, cap, "a soft cap lies in 0.1..=10000", "use e.g. 50, or 0 for none"))
        }
        cap => Ok(cap),
    }
}
