//! Fields of Megatron Core, from most of which Megatron-LM makes its flags.

use std::fmt::Display;

/// The value of a field of Megatron Core.
pub(super) enum Setting {
    /// On or off; usually off.
    Switch(bool),
    /// A number or a name.
    Said(String),
    /// The usual one, as YAML writes it: a recipe may have another.
    Usual(&'static str),
    /// By block, whether it is meant.
    Blocks(Vec<bool>),
    /// Two whole numbers.
    Pair([usize; 2]),
}

/// Fields of Megatron Core with their values.
#[derive(Default)]
pub(super) struct Fields(pub Vec<(&'static str, Setting)>);

impl Fields {
    pub fn say(&mut self, field: &'static str, value: impl Display) {
        self.0.push((field, Setting::Said(value.to_string())));
    }

    pub fn maybe(&mut self, field: &'static str, value: Option<impl Display>) {
        self.set(field, value.map(|value| Setting::Said(value.to_string())), "null");
    }

    /// What is said, or the usual.
    pub fn set(&mut self, field: &'static str, said: Option<Setting>, usual: &'static str) {
        self.0.push((field, said.unwrap_or(Setting::Usual(usual))));
    }

    pub fn switch(&mut self, field: &'static str, on: bool) {
        self.0.push((field, Setting::Switch(on)));
    }
}

/// A list expression that Megatron reads: `([0]+[1]*3)*8`.
pub(super) fn list_expression(blocks: &[bool]) -> String {
    let length = blocks.len();
    let repeats = |period: &usize| (*period..length).all(|i| blocks[i] == blocks[i - period]);
    let period = (1..length).filter(|period| length.is_multiple_of(*period)).find(repeats).unwrap_or(length);
    let runs = blocks[..period].chunk_by(|a, b| a == b).map(|run| match run.len() {
        1 => format!("[{}]", u8::from(run[0])),
        count => format!("[{}]*{count}", u8::from(run[0])),
    });
    let once = runs.collect::<Vec<_>>().join("+");
    if period == length { once } else { format!("({once})*{}", length / period) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_spelled_as_megatron_evaluates_them() {
        let spelled = |text: &str| list_expression(&text.chars().map(|block| block == '1').collect::<Vec<_>>());
        assert_eq!(spelled("0101"), "([0]+[1])*2");
        assert_eq!(spelled("0111"), "[0]+[1]*3");
        assert_eq!(spelled("001001"), "([0]*2+[1])*2");
        assert_eq!(spelled("01101"), "[0]+[1]*2+[0]+[1]");
        assert_eq!(spelled("000"), "([0])*3");
        assert_eq!(spelled("1"), "[1]");
    }
}
