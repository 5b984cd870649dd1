//! The optimizer's constants as `--set` and `--lr` give them.

use quadrille_engine::Hyper;
use quadrille_spec::SpecError;

/// A training field that `--set` takes beside those of the model.
struct Field {
    name: &'static str,
    rule: &'static str,
    /// A value that keeps the rule.
    example: &'static str,
    /// Whether the text is a value that keeps the rule; then it is set.
    set: fn(&mut Hyper, &str) -> bool,
}

const FIELDS: [Field; 8] = [
    Field {
        name: "learning_rate",
        rule: "it must be a number of at least 0",
        example: "3e-4",
        set: |hyper, text| assign(&mut hyper.learning_rate, text, |value| value >= 0.0),
    },
    Field {
        name: "final_fraction",
        rule: "it must lie in 0..=1",
        example: "0.1",
        set: |hyper, text| assign(&mut hyper.final_fraction, text, |value| (0.0..=1.0).contains(&value)),
    },
    Field {
        name: "warmup_steps",
        rule: "it must be a whole number",
        example: "20",
        set: |hyper, text| text.parse().map(|steps| hyper.warmup_steps = steps).is_ok(),
    },
    Field {
        name: "beta1",
        rule: "it must lie in [0, 1)",
        example: "0.9",
        set: |hyper, text| assign(&mut hyper.beta1, text, |value| (0.0..1.0).contains(&value)),
    },
    Field {
        name: "beta2",
        rule: "it must lie in [0, 1)",
        example: "0.95",
        set: |hyper, text| assign(&mut hyper.beta2, text, |value| (0.0..1.0).contains(&value)),
    },
    Field {
        name: "epsilon",
        rule: "it must be above 0",
        example: "1e-8",
        set: |hyper, text| assign(&mut hyper.epsilon, text, |value| value > 0.0),
    },
    Field {
        name: "weight_decay",
        rule: "it must be at least 0",
        example: "0.1",
        set: |hyper, text| assign(&mut hyper.weight_decay, text, |value| value >= 0.0),
    },
    Field {
        name: "clip",
        rule: "it must be above 0, or 'none'",
        example: "1.0",
        set: |hyper, text| {
            let mut norm = 0.0;
            let kept = text == "none" || assign(&mut norm, text, |value| value > 0.0);
            if kept {
                hyper.clip = (text != "none").then_some(norm);
            }
            kept
        },
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

/// The names of all fields.
pub fn names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|field| field.name)
}

/// Training constants, and whether their warm-up was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constants {
    hyper: Hyper,
    warmup_typed: bool,
}

impl Constants {
    /// Constants of which nothing was typed.
    pub fn new(hyper: Hyper) -> Self {
        Self { hyper, warmup_typed: false }
    }

    /// Applies `--set name=value`; `false` if there is no such field.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, SpecError> {
        let Some(field) = FIELDS.iter().find(|field| field.name == name) else { return Ok(false) };
        self.warmup_typed |= name == "warmup_steps";
        if (field.set)(&mut self.hyper, value) {
            return Ok(true);
        }
        Err(SpecError::invalid(name, value, field.rule, format!("e.g. --set {name}={}", field.example)))
    }

    /// The constants of a run of `steps` steps with the rate of `--lr`. Warm-up that was not asked for is shortened to
    /// half the run.
    pub fn of_run(mut self, rate: Option<f64>, steps: u64) -> Result<Hyper, SpecError> {
        if let Some(rate) = rate {
            // The field's rule under the flag's name.
            let [field, ..] = &FIELDS;
            if !(field.set)(&mut self.hyper, &rate.to_string()) {
                return Err(SpecError::invalid("--lr", rate, field.rule, format!("e.g. --lr {}", field.example)));
            }
        }
        let warmup = self.hyper.warmup_steps;
        if self.warmup_typed && warmup > steps {
            let rule = format!("it must be at most the number of steps, {steps}");
            let remedy = format!("e.g. --set warmup_steps={}, or more --steps", steps.div_ceil(2));
            return Err(SpecError::invalid("warmup_steps", warmup, rule, remedy));
        }
        let warmup_steps = if self.warmup_typed { warmup } else { warmup.min(steps / 2) };
        Ok(Hyper { steps, warmup_steps, ..self.hyper })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_keep_their_rules_and_fields_are_told_apart() {
        for field in &FIELDS {
            let mut set = Constants::new(Hyper { clip: None, warmup_steps: 7, ..Hyper::default() });
            assert_eq!(set.set(field.name, field.example), Ok(true), "{}", field.name);
            let message = set.set(field.name, "many").unwrap_err().to_string();
            let remedy = format!("e.g. --set {}={}", field.name, field.example);
            assert_eq!(message, format!("{} = many: {}; {remedy}", field.name, field.rule));
        }
        assert_eq!(Constants::new(Hyper::default()).set("layers", "3"), Ok(false));
    }

    #[test]
    fn a_field_changes_itself_only() {
        let mut set = Constants::new(Hyper::default());
        for (name, value) in [("weight_decay", "0"), ("clip", "none"), ("beta2", "0.5")] {
            set.set(name, value).unwrap();
        }
        let hyper = Hyper { weight_decay: 0.0, clip: None, beta2: 0.5, ..Hyper::default() };
        assert_eq!(set.hyper, hyper);
    }

    #[test]
    fn a_rate_is_refused_under_the_name_it_came_with() {
        let constants = Constants::new(Hyper::default());
        let message = constants.of_run(Some(-1.0), 9).unwrap_err().to_string();
        assert_eq!(message, "--lr = -1: it must be a number of at least 0; e.g. --lr 3e-4");
        assert_eq!(constants.of_run(Some(0.5), 9).unwrap().learning_rate, 0.5);
    }

    #[test]
    fn warm_up_is_shortened_only_if_it_was_not_asked_for() {
        let default = Constants::new(Hyper { warmup_steps: 20, ..Hyper::default() });
        let steps = |constants: Constants, steps| constants.of_run(None, steps).map(|hyper| hyper.warmup_steps);
        assert_eq!((steps(default, 10), steps(default, 100)), (Ok(5), Ok(20)));
        let mut typed = default;
        typed.set("warmup_steps", "10").unwrap();
        assert_eq!((steps(typed, 10), steps(typed, 19)), (Ok(10), Ok(10)));
        let message = steps(typed, 9).unwrap_err().to_string();
        let remedy = "e.g. --set warmup_steps=5, or more --steps";
        assert_eq!(message, format!("warmup_steps = 10: it must be at most the number of steps, 9; {remedy}"));
    }
}
