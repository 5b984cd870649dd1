//! The optimizer's constants, and the rules that they keep.

use quadrille_engine::{Hyper, schedule};
use serde::{Deserialize, Serialize};

use crate::refusal::{Refusal, Setting};

/// What AdamW and the schedule of its rate are told.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerSpec {
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Learning rate at the end, as a fraction of the peak.
    pub final_fraction: f64,
    /// Steps of linear warm-up.
    pub warmup_steps: Warmup,
    /// The step at which the learning rate has fallen to its end; `None`: the run's last.
    #[serde(default)]
    pub decay_steps: Option<u64>,
    /// Decay of the gradient's running mean.
    pub beta1: f64,
    /// Decay of the squared gradient's running mean.
    pub beta2: f64,
    /// Added to the root of the squared gradient's mean.
    pub epsilon: f64,
    /// Decoupled weight decay on matrices and tables.
    pub weight_decay: f64,
    /// Largest global gradient norm; `None`: no clipping.
    pub clip: Option<f64>,
}

/// How long a run warms up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Warmup {
    /// So many steps.
    Exactly(u64),
    /// So many steps, or half the run where that is shorter.
    AtMost(u64),
}

impl Warmup {
    fn steps(self) -> u64 {
        match self {
            Self::Exactly(steps) | Self::AtMost(steps) => steps,
        }
    }
}

/// What comes before the names of fields in a [`crate::RunSpec`].
const PREFIX: &str = "optimizer.";

/// A field of [`OptimizerSpec`].
struct Field {
    /// Its name after [`PREFIX`].
    key: &'static str,
    rule: &'static str,
    /// A value that keeps the rule.
    example: &'static str,
    /// Whether the text is a value that keeps the rule; then it is set.
    set: fn(&mut OptimizerSpec, &str) -> bool,
    /// The value as text.
    of: fn(&OptimizerSpec) -> String,
}

const FIELDS: [Field; 9] = [
    Field {
        key: "optimizer.learning_rate",
        rule: "it must be a number of at least 0",
        example: "3e-4",
        set: |spec, text| assign(&mut spec.learning_rate, text, |value| value >= 0.0),
        of: |spec| spec.learning_rate.to_string(),
    },
    Field {
        key: "optimizer.final_fraction",
        rule: "it must lie in 0..=1",
        example: "0.1",
        set: |spec, text| assign(&mut spec.final_fraction, text, |value| (0.0..=1.0).contains(&value)),
        of: |spec| spec.final_fraction.to_string(),
    },
    Field {
        key: "optimizer.warmup_steps",
        rule: "it must be a whole number",
        example: "20",
        set: |spec, text| text.parse().map(|steps| spec.warmup_steps = Warmup::Exactly(steps)).is_ok(),
        of: |spec| spec.warmup_steps.steps().to_string(),
    },
    Field {
        key: "optimizer.decay_steps",
        rule: "it must be a whole number of at least 1, or 'run'",
        example: "400",
        set: |spec, text| {
            let steps = text.parse().ok().filter(|steps: &u64| *steps > 0);
            let kept = text == "run" || steps.is_some();
            if kept {
                spec.decay_steps = steps;
            }
            kept
        },
        of: |spec| spec.decay_steps.map_or("run".to_owned(), |steps| steps.to_string()),
    },
    Field {
        key: "optimizer.beta1",
        rule: "it must lie in [0, 1)",
        example: "0.9",
        set: |spec, text| assign(&mut spec.beta1, text, |value| (0.0..1.0).contains(&value)),
        of: |spec| spec.beta1.to_string(),
    },
    Field {
        key: "optimizer.beta2",
        rule: "it must lie in [0, 1)",
        example: "0.95",
        set: |spec, text| assign(&mut spec.beta2, text, |value| (0.0..1.0).contains(&value)),
        of: |spec| spec.beta2.to_string(),
    },
    Field {
        key: "optimizer.epsilon",
        rule: "it must be above 0",
        example: "1e-8",
        set: |spec, text| assign(&mut spec.epsilon, text, |value| value > 0.0),
        of: |spec| spec.epsilon.to_string(),
    },
    Field {
        key: "optimizer.weight_decay",
        rule: "it must be at least 0",
        example: "0.1",
        set: |spec, text| assign(&mut spec.weight_decay, text, |value| value >= 0.0),
        of: |spec| spec.weight_decay.to_string(),
    },
    Field {
        key: "optimizer.clip",
        rule: "it must be above 0, or 'none'",
        example: "1.0",
        set: |spec, text| {
            let mut norm = 0.0;
            let kept = text == "none" || assign(&mut norm, text, |value| value > 0.0);
            if kept {
                spec.clip = (text != "none").then_some(norm);
            }
            kept
        },
        of: |spec| spec.clip.map_or("none".to_owned(), |norm| norm.to_string()),
    },
];

/// Sets `target` to the finite number that `text` says, if it is `allowed`.
fn assign(target: &mut f64, text: &str, allowed: fn(f64) -> bool) -> bool {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && allowed(*number));
    if let Some(number) = number {
        *target = number;
    }
    number.is_some()
}

impl OptimizerSpec {
    /// The names of all fields.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FIELDS.iter().map(Field::name)
    }

    /// What a field is called in a [`crate::RunSpec`], where there is one of that name.
    pub(crate) fn key(name: &str) -> Option<&'static str> {
        FIELDS.iter().find(|field| field.name() == name).map(|field| field.key)
    }

    /// Sets the field `name` as text says it; `false` if there is no such field. Warm-up is then exactly as long.
    ///
    /// # Errors
    /// A value that breaks the field's rule.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, Refusal> {
        let Some(field) = FIELDS.iter().find(|field| field.name() == name) else { return Ok(false) };
        if (field.set)(self, value) { Ok(true) } else { Err(field.refusal(value)) }
    }

    /// The same with another peak of the learning rate.
    ///
    /// # Errors
    /// A rate that breaks the rule, under the name of [`Setting::LearningRate`].
    pub fn with_rate(mut self, rate: f64) -> Result<Self, Refusal> {
        let [field, ..] = &FIELDS;
        if (field.set)(&mut self, &rate.to_string()) {
            return Ok(self);
        }
        let refusal = Refusal::of(Setting::LearningRate).text(format!(" = {rate}: {}; e.g. ", field.rule));
        Err(refusal.name(Setting::LearningRate).text(format!(" {}", field.example)))
    }

    /// Refuses values that break their rules.
    ///
    /// # Errors
    /// The first of them.
    pub fn check(&self) -> Result<(), Refusal> {
        FIELDS.iter().try_for_each(|field| {
            let value = (field.of)(self);
            if (field.set)(&mut self.clone(), &value) { Ok(()) } else { Err(field.refusal(&value)) }
        })
    }

    /// The learning rate that step `step` has where a run is to end after `steps` steps.
    ///
    /// # Errors
    /// As [`Self::hyper`].
    pub fn learning_rate_at(&self, step: u64, steps: u64) -> Result<f64, Refusal> {
        Ok(schedule(&self.hyper(steps)?, step))
    }

    /// What the engine is told of a run of `steps` steps.
    ///
    /// # Errors
    /// No step; a warm-up of exactly more steps than there are.
    pub fn hyper(&self, steps: u64) -> Result<Hyper, Refusal> {
        if steps == 0 {
            return Err(Refusal::of(Setting::Steps).text(" 0: train at least one step"));
        }
        let steps = self.decay_steps.unwrap_or(steps);
        let warmup_steps = match self.warmup_steps {
            Warmup::Exactly(warmup) if warmup > steps => {
                let (of, more) = match self.decay_steps {
                    Some(_) => ("decay_steps", Setting::Optimizer("decay_steps")),
                    None => ("the number of steps", Setting::Steps),
                };
                let rule = format!("warmup_steps = {warmup}: it must be at most {of}, {steps}; e.g. ");
                let refusal = Refusal::new(rule).name(Setting::Optimizer("warmup_steps"));
                return Err(refusal.text(format!("={}, or more ", steps.div_ceil(2))).name(more));
            }
            Warmup::Exactly(warmup) => warmup,
            Warmup::AtMost(warmup) => warmup.min(steps / 2),
        };
        let Self { learning_rate, final_fraction, beta1, beta2, epsilon, weight_decay, clip, .. } = *self;
        Ok(Hyper { learning_rate, final_fraction, warmup_steps, steps, beta1, beta2, epsilon, weight_decay, clip })
    }
}

impl Field {
    /// As in [`OptimizerSpec`].
    fn name(&self) -> &'static str {
        self.key.strip_prefix(PREFIX).unwrap_or(self.key)
    }

    fn refusal(&self, value: &str) -> Refusal {
        let refusal = Refusal::new(format!("{} = {value}: {}; e.g. ", self.name(), self.rule));
        refusal.name(Setting::Optimizer(self.name())).text(format!("={}", self.example))
    }
}

impl From<Hyper> for OptimizerSpec {
    /// The same constants, whose warm-up nobody has asked for. How many steps there are, a run says itself.
    fn from(hyper: Hyper) -> Self {
        let Hyper { learning_rate, final_fraction, warmup_steps, beta1, beta2, epsilon, weight_decay, clip, .. } =
            hyper;
        let warmup_steps = Warmup::AtMost(warmup_steps);
        let decay_steps = None;
        Self { learning_rate, final_fraction, warmup_steps, decay_steps, beta1, beta2, epsilon, weight_decay, clip }
    }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::Named;

    use super::*;

    /// As a command line spells it.
    fn message(refusal: &Refusal) -> String {
        refusal.spelled(|setting| match setting {
            Setting::Optimizer(name) => format!("--set {name}"),
            Setting::LearningRate => "--lr".to_owned(),
            other => format!("--{}", other.key()),
        })
    }

    fn usual() -> OptimizerSpec {
        Hyper::default().into()
    }

    #[test]
    fn examples_keep_their_rules_and_fields_are_told_apart() {
        for field in &FIELDS {
            let mut set = OptimizerSpec { clip: None, warmup_steps: Warmup::AtMost(7), ..usual() };
            assert_eq!(set.set(field.name(), field.example), Ok(true), "{}", field.name());
            set.check().unwrap();
            let message = message(&set.set(field.name(), "many").unwrap_err());
            let remedy = format!("e.g. --set {}={}", field.name(), field.example);
            assert_eq!(message, format!("{} = many: {}; {remedy}", field.name(), field.rule));
        }
        assert_eq!(usual().set("layers", "3"), Ok(false));
    }

    #[test]
    fn programs_are_told_the_place_in_a_run_s_specification() {
        let refused = OptimizerSpec { clip: Some(0.0), ..usual() }.check().unwrap_err().to_string();
        assert_eq!(refused, "clip = 0: it must be above 0, or 'none'; e.g. `optimizer.clip`=1.0");
        for field in &FIELDS {
            assert_eq!(Setting::Optimizer(field.name()).key(), format!("optimizer.{}", field.name()));
        }
    }

    #[test]
    fn a_field_changes_itself_only() {
        let mut set = usual();
        for (name, value) in [("weight_decay", "0"), ("clip", "none"), ("beta2", "0.5")] {
            set.set(name, value).unwrap();
        }
        assert_eq!(set, OptimizerSpec { weight_decay: 0.0, clip: None, beta2: 0.5, ..usual() });
    }

    #[test]
    fn values_of_programs_have_the_rules_of_text() {
        for (broken, words) in [
            (OptimizerSpec { beta1: 1.0, ..usual() }, "beta1 = 1: it must lie in [0, 1)"),
            (OptimizerSpec { learning_rate: f64::NAN, ..usual() }, "learning_rate = NaN: it must be a number"),
            (OptimizerSpec { clip: Some(0.0), ..usual() }, "clip = 0: it must be above 0, or 'none'"),
        ] {
            let message = broken.check().unwrap_err().to_string();
            assert!(message.starts_with(words), "{message}");
        }
        assert_eq!(OptimizerSpec { clip: None, ..usual() }.check(), Ok(()));
    }

    #[test]
    fn a_rate_is_refused_under_the_name_it_came_with() {
        let refusal = usual().with_rate(-1.0).unwrap_err();
        assert_eq!(message(&refusal), "--lr = -1: it must be a number of at least 0; e.g. --lr 3e-4");
        assert_eq!(usual().with_rate(0.5).unwrap().hyper(9).unwrap().learning_rate, 0.5);
    }

    #[test]
    fn warm_up_is_shortened_only_if_it_was_not_asked_for() {
        let steps = |spec: OptimizerSpec, steps| spec.hyper(steps).map(|hyper| hyper.warmup_steps);
        assert_eq!((steps(usual(), 10), steps(usual(), 100)), (Ok(5), Ok(20)));
        let mut typed = usual();
        typed.set("warmup_steps", "10").unwrap();
        assert_eq!((steps(typed, 10), steps(typed, 19)), (Ok(10), Ok(10)));
        let message = message(&steps(typed, 9).unwrap_err());
        let remedy = "e.g. --set warmup_steps=5, or more --steps";
        assert_eq!(message, format!("warmup_steps = 10: it must be at most the number of steps, 9; {remedy}"));
    }
}
