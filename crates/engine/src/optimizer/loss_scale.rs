//! Loss scaling: a factor of gradients while they are computed, so that numbers of few bits hold them.
//!
//! The gradient of the loss is multiplied by a power of two, and the update divides by it with its other factors. That
//! changes no bit but where numbers leave the range of their type.

use std::fmt;
use std::str::FromStr;

use quadrille_checkpoint::Checkpoint;
use quadrille_spec::ElementType;
use quadrille_step::StepProgram;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::StepOutcome;

/// How a run finds the factor of its gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossScale {
    /// It is halved after a gradient that is not finite, whose step is skipped, and doubled after many good steps in a row.
    #[default]
    Auto,
    /// This power of two.
    Fixed(u32),
}

impl LossScale {
    /// The factor of the first step, where it changes.
    pub const FIRST: u32 = 1 << 16;
    /// It is not halved below this.
    pub const LEAST: u32 = 1 << 10;
    /// It is not doubled above this.
    pub const LARGEST: u32 = 1 << 24;
    /// Good steps in a row after which it is doubled.
    pub const GOOD_STEPS: u32 = 200;

    /// What a choice keeps, in words.
    pub const RULE: &str = "it is auto, or a power of two below 4294967296, e.g. 1024";

    /// What a run has where nobody says it: gradients of other types than f16 keep their range.
    pub fn usual(dtype: ElementType) -> Option<Self> {
        (dtype == ElementType::F16).then_some(Self::Auto)
    }

    /// Whether it is a choice that a run can have.
    pub fn is_legal(self) -> bool {
        match self {
            Self::Auto => true,
            Self::Fixed(scale) => scale.is_power_of_two(),
        }
    }
}

impl fmt::Display for LossScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(scale) => write!(f, "{scale}"),
        }
    }
}

impl FromStr for LossScale {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let choice = if text == "auto" { Some(Self::Auto) } else { text.parse().ok().map(Self::Fixed) };
        choice.filter(|choice| choice.is_legal()).ok_or(Self::RULE)
    }
}

/// For steps that must all be applied: in f16 the largest power of two that is no more than the number of targets, so that
/// the gradients of logits are nearly those of their own losses, not of the mean; else 1.
pub(crate) fn steady(program: &StepProgram) -> u32 {
    let targets = program.layout.targets_per_step(&program.model);
    if program.layout.dtype == ElementType::F16 { 1 << targets.ilog2().min(24) } else { 1 }
}

/// What checkpoints call the state.
const STATE: &str = "loss_scale";

/// The factor of the next step's gradients. Ranks that see the same outcomes have the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LossScaler {
    rule: Option<LossScale>,
    scale: u32,
    /// Good steps in a row.
    good: u32,
}

impl LossScaler {
    /// At the beginning of a run; with no rule gradients are what they are.
    pub fn new(rule: Option<LossScale>) -> Self {
        let scale = match rule {
            None => 1,
            Some(LossScale::Fixed(scale)) => scale,
            Some(LossScale::Auto) => LossScale::FIRST,
        };
        Self { rule, scale, good: 0 }
    }

    /// Where the run was that wrote the checkpoint, if it says so.
    pub fn resumed(rule: Option<LossScale>, checkpoint: &Checkpoint) -> Self {
        let new = Self::new(rule);
        if rule != Some(LossScale::Auto) {
            return new;
        }
        let number = |name| checkpoint.about().run.get(STATE)?.get(name)?.as_u64()?.try_into().ok();
        let allowed = |scale: &u32| scale.is_power_of_two() && (LossScale::LEAST..=LossScale::LARGEST).contains(scale);
        let fewer = |good: &u32| *good < LossScale::GOOD_STEPS;
        match (number("scale").filter(allowed), number("good_steps").filter(fewer)) {
            (Some(scale), Some(good)) => Self { scale, good, ..new },
            _ => new,
        }
    }

    /// For a checkpoint.
    pub fn write(&self, run: &mut Value) {
        if let (Value::Object(run), Some(LossScale::Auto)) = (run, self.rule) {
            let state = [("scale", self.scale), ("good_steps", self.good)];
            let state: Map<String, Value> =
                state.map(|(name, number)| (name.to_owned(), number.into())).into_iter().collect();
            run.insert(STATE.to_owned(), state.into());
        }
    }

    /// The factor, 1 where there is no rule.
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// What steps say of it.
    pub fn shown(&self) -> Option<u32> {
        self.rule.map(|_| self.scale)
    }

    /// Remedy for gradients that are not finite, in an error that names the scale.
    pub fn remedy(&self) -> String {
        match self.rule {
            Some(LossScale::Auto) => {
                let least = LossScale::LEAST;
                format!("use `layout.dtype` bf16, or a `run.loss_scale` below {least}, the smallest of auto")
            }
            Some(LossScale::Fixed(1)) => {
                "use `layout.dtype` bf16 or f32: 1 is the smallest `run.loss_scale`".to_owned()
            }
            Some(LossScale::Fixed(_)) => "take a smaller `run.loss_scale`, or auto".to_owned(),
            None => "lower the learning rate, or clip gradients".to_owned(),
        }
    }

    /// Takes in what became of a step. Whether it is to be skipped because its factor was too large: the next one is smaller.
    /// At the lower end, and where the factor is fixed, a gradient that is not finite is no matter of the factor.
    pub fn see(&mut self, outcome: &StepOutcome) -> bool {
        if self.rule != Some(LossScale::Auto) {
            return false;
        }
        if outcome.applied {
            self.good += 1;
            if self.good == LossScale::GOOD_STEPS {
                (self.scale, self.good) = ((2 * self.scale).min(LossScale::LARGEST), 0);
            }
            return false;
        }
        let overflow = outcome.loss.is_finite() && !outcome.gradient_norm.is_finite();
        if overflow {
            self.good = 0;
        }
        let is_skipped = overflow && self.scale > LossScale::LEAST;
        if is_skipped {
            self.scale /= 2;
        }
        is_skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(loss: f64, gradient_norm: f64) -> StepOutcome {
        let applied = loss.is_finite() && gradient_norm.is_finite();
        StepOutcome { loss, gradient_norm, learning_rate: 0.1, router: None, applied, repeated: false }
    }

    #[test]
    fn the_scale_is_halved_by_an_overflow_and_doubled_by_good_steps_in_a_row() {
        let mut scaler = LossScaler::new(Some(LossScale::Auto));
        let good = outcome(2.0, 1.0);
        let overflow = outcome(2.0, f64::NAN);
        for _ in 0..199 {
            assert!(!scaler.see(&good));
        }
        assert!(scaler.see(&overflow));
        assert_eq!(scaler.scale(), 1 << 15);
        (0..199).for_each(|_| assert!(!scaler.see(&good)));
        assert_eq!(scaler.scale(), 1 << 15, "steps before the overflow do not count");
        assert!(!scaler.see(&good));
        assert_eq!(scaler.scale(), 1 << 16);
        (0..200 * 20).for_each(|_| assert!(!scaler.see(&good)));
        assert_eq!(scaler.scale(), LossScale::LARGEST);
    }

    #[test]
    fn what_is_no_matter_of_the_scale_is_not_skipped() {
        let overflow = outcome(2.0, f64::INFINITY);
        let mut scaler = LossScaler::new(Some(LossScale::Auto));
        assert!(!scaler.see(&outcome(f64::NAN, f64::NAN)), "a loss that is no number");
        assert!(!scaler.see(&StepOutcome { applied: false, ..outcome(9.0, 1.0) }), "a loss that is too large");
        assert_eq!(scaler.scale(), LossScale::FIRST);
        (0..6).for_each(|_| assert!(scaler.see(&overflow)));
        assert!(!scaler.see(&overflow), "the lower end");
        assert_eq!(scaler.scale(), LossScale::LEAST);
        for rule in [None, Some(LossScale::Fixed(4096))] {
            let mut scaler = LossScaler::new(rule);
            assert!(!scaler.see(&overflow));
            assert_eq!(scaler, LossScaler::new(rule));
        }
    }

    #[test]
    fn a_choice_is_read_as_it_is_written() {
        for choice in [LossScale::Auto, LossScale::Fixed(1), LossScale::Fixed(1024)] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        for text in ["", "0", "3", "-2", "0.5", "1e3", "Auto", "4294967296"] {
            assert_eq!(text.parse::<LossScale>(), Err(LossScale::RULE), "{text}");
        }
    }
}
