//! What a whole training may take, and what follows for it from the price of a step.

use std::fmt;
use std::str::FromStr;

use quadrille_spec::SpecError;

use super::question::Question;
use super::ranking::Ranked;
use crate::goodput::{Failures, Goodput};

/// What a training may take, and what it is reckoned with.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Budget {
    /// What prices are in.
    pub currency: Currency,
    /// After so many days the training is to be done; counts where its tokens are known.
    pub days: Option<f64>,
    /// How often devices fail; `None`: never.
    pub failures: Option<Failures>,
}

/// The unit of prices, by its three letters of ISO 4217.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Currency([u8; 3]);

impl Default for Currency {
    /// US dollars.
    fn default() -> Self {
        Self(*b"USD")
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|letter| write!(f, "{}", char::from(*letter)))
    }
}

impl FromStr for Currency {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match <[u8; 3]>::try_from(text.as_bytes()) {
            Ok(letters) if letters.iter().all(u8::is_ascii_uppercase) => Ok(Self(letters)),
            _ => Err(SpecError::invalid(
                "`search.currency`",
                text,
                "it is a code of three capital letters",
                "write e.g. USD or EUR",
            )),
        }
    }
}

/// When a training is to be done, and what decides how long it takes beside its layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deadline {
    days: f64,
    steps: f64,
    failures: Option<Failures>,
}

impl Deadline {
    /// Whether the training by a layout of this price is done in time.
    pub fn is_kept(&self, ranked: &Ranked) -> bool {
        self.days_of(ranked) <= self.days
    }

    /// Days of the training by a layout of this price.
    pub fn days_of(&self, ranked: &Ranked) -> f64 {
        days(self.steps, self.failures.as_ref(), ranked)
    }

    /// Days after which the training is to be done.
    pub fn days(&self) -> f64 {
        self.days
    }
}

impl Question {
    /// When the training is to be done, where days and tokens are said.
    pub fn deadline(&self) -> Option<Deadline> {
        let (days, steps) = self.budget.days.zip(self.steps())?;
        Some(Deadline { days, steps, failures: self.budget.failures })
    }

    /// Days of the training by a layout of this price, with those that failures cost; `None` where its tokens are not known.
    pub fn days(&self, ranked: &Ranked) -> Option<f64> {
        self.steps().map(|steps| days(steps, self.budget.failures.as_ref(), ranked))
    }

    /// What failures leave of the time by a layout of this price, where it is said how often devices fail.
    pub fn goodput(&self, ranked: &Ranked) -> Option<Goodput> {
        self.budget.failures.as_ref().map(|failures| goodput(failures, ranked))
    }

    /// Steps of the training, not rounded.
    fn steps(&self) -> Option<f64> {
        self.tokens.map(|tokens| tokens / (self.global_batch * self.seq_len) as f64)
    }
}

fn days(steps: f64, failures: Option<&Failures>, ranked: &Ranked) -> f64 {
    let share = failures.map_or(1.0, |failures| goodput(failures, ranked).share);
    steps * ranked.price.seconds / share / 86_400.0
}

/// A checkpoint has the parameters and the optimizer's states of the rank that needs most memory.
fn goodput(failures: &Failures, ranked: &Ranked) -> Goodput {
    let memory = &ranked.price.memory;
    Goodput::new(failures, ranked.candidate.devices(), ranked.price.seconds, memory.parameters + memory.optimizer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn currencies_have_three_letters() {
        assert_eq!("EUR".parse::<Currency>().map(|currency| currency.to_string()), Ok("EUR".to_owned()));
        for wrong in ["", "eur", "EURO", "E1R", "€"] {
            let message = wrong.parse::<Currency>().unwrap_err().to_string();
            assert!(message.contains("currency") && message.contains("USD or EUR"), "{message}");
        }
    }
}
