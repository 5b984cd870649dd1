//! Numbers of flags: what is none is refused by the rule, with an example.

use std::ops::{Bound, RangeBounds};

use quadrille_spec::SpecError;

/// Reads whole numbers of a range.
pub fn whole<T: TryFrom<u64> + Send + Sync + 'static>(
    range: impl RangeBounds<u64>,
) -> impl Fn(&str) -> Result<T, SpecError> + Clone + Send + Sync + 'static {
    let least = match range.start_bound() {
        Bound::Included(least) => *least,
        Bound::Excluded(below) => below + 1,
        Bound::Unbounded => 0,
    };
    let most = match range.end_bound() {
        Bound::Included(most) => *most,
        Bound::Excluded(above) => above - 1,
        Bound::Unbounded => u64::MAX,
    };
    // What the type holds.
    let most = most.min(u64::MAX >> (64 - 8 * size_of::<T>()));
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| not_whole(text, least, most))
    }
}

/// Reads any number.
///
/// # Errors
/// What is no number.
pub fn real(text: &str) -> Result<f64, SpecError> {
    text.parse()
        .ok()
        .ok_or_else(|| SpecError::Number { rule: "a number".to_owned(), remedy: "write e.g. 0.5 or 3e-4".to_owned() })
}

/// What is wrong with a number that is read.
fn not_whole(text: &str, least: u64, most: u64) -> SpecError {
    let rule = match (least, most) {
        (0, most) if most >= u64::from(u16::MAX) => "a whole number".to_owned(),
        (least, most) if most >= u64::from(u32::MAX) => format!("a whole number of at least {least}"),
        _ => format!("a whole number from {least} to {most}"),
    };
    let remedy = match text.parse::<f64>() {
        Ok(number) if number >= most as f64 => format!("{most} is the largest"),
        Ok(number) if number < least as f64 => format!("{least} is the smallest"),
        _ => format!("write e.g. {}", 8.clamp(least, most)),
    };
    SpecError::Number { rule, remedy }
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;

    use clap::{Command, CommandFactory};

    use super::*;
    use crate::arguments::Arguments;

    /// The message of every flag of a number for `words`, with the command line.
    fn refusals(command: &Command, line: &[String], told: &mut Vec<(String, String)>) {
        let numbers =
            [TypeId::of::<usize>(), TypeId::of::<u64>(), TypeId::of::<u32>(), TypeId::of::<u16>(), TypeId::of::<f64>()];
        for argument in command.get_arguments().filter(|argument| !argument.is_positional()) {
            let read_as = argument.get_value_parser().type_id();
            if let Some(flag) = argument.get_long().filter(|_| numbers.iter().any(|number| read_as == *number)) {
                let line = [line, &[format!("--{flag}=words")]].concat();
                let error = Arguments::command().try_get_matches_from(&line).unwrap_err();
                told.push((line.join(" "), error.to_string()));
            }
        }
        for command in command.get_subcommands() {
            refusals(command, &[line, &[command.get_name().to_owned()]].concat(), told);
        }
    }

    #[test]
    fn every_flag_of_a_number_is_read_here() {
        let mut told = Vec::new();
        refusals(&Arguments::command(), &["quadrille".to_owned()], &mut told);
        assert!(told.len() > 60, "{}", told.len());
        for (line, message) in told {
            assert!(message.contains("'words' for '--") && message.contains(": it is "), "{line}: {message}");
            assert!(message.contains("write e.g. "), "{line}: {message}");
        }
    }

    #[test]
    fn numbers_are_read_and_what_is_none_is_refused_by_the_rule() {
        assert_eq!(whole::<usize>(..)("12"), Ok(12));
        assert_eq!(whole::<u16>(1..)("65535"), Ok(65535));
        assert_eq!(real("3e-4"), Ok(3e-4));
        let told = |error: Result<u64, SpecError>| error.unwrap_err().to_string();
        for text in ["", "x", "1.5"] {
            assert_eq!(told(whole(..)(text)), "it is a whole number; write e.g. 8");
        }
        assert_eq!(told(whole(..)("-1")), "it is a whole number; 0 is the smallest");
        assert_eq!(told(whole(1..)("0")), "it is a whole number of at least 1; 1 is the smallest");
        assert_eq!(told(whole(2..=4)("5")), "it is a whole number from 2 to 4; 4 is the largest");
        assert_eq!(told(whole(2..5)("a")), "it is a whole number from 2 to 4; write e.g. 4");
        let large = whole::<u16>(1..)("65536").unwrap_err().to_string();
        assert_eq!(large, "it is a whole number from 1 to 65535; 65535 is the largest");
        for text in ["x", "", "1,5"] {
            assert_eq!(real(text).unwrap_err().to_string(), "it is a number; write e.g. 0.5 or 3e-4", "{text}");
        }
    }
}
