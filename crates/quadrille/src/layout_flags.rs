//! The flags of a layout's fields, made from their table.

use clap::builder::ArgAction;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};
use quadrille_run::OpenLayout;
use quadrille_spec::{Field, FieldValue, Kind, LayoutFile};

/// What was typed of the fields of a layout, but for those whose flags mean more, or another thing in each command: the
/// grid and the type of values.
#[derive(Debug, Clone)]
pub struct LayoutFlags(pub LayoutFile);

/// The fields that have a flag here.
fn fields() -> impl Iterator<Item = Field> {
    Field::ALL.into_iter().filter(|field| ![Field::Grid, Field::Dtype].contains(field))
}

/// The flag of a field.
fn flag(field: Field) -> Arg {
    let flag = Arg::new(field.key()).long(field.name()).value_name(field.value_name()).help(field.help());
    let flag = match field.heading() {
        Some(heading) => flag.help_heading(heading),
        None => flag,
    };
    match field.kind() {
        Kind::Truth => {
            flag.num_args(0..=1).require_equals(true).default_missing_value("true").value_parser(value_parser!(bool))
        }
        Kind::Sizes => flag.action(ArgAction::Append).value_delimiter(',').value_parser(value_parser!(usize)),
        Kind::Size | Kind::Name => flag.value_parser(move |text: &str| match (field, text) {
            (Field::Recompute, OpenLayout::LEAST_INTERVAL) => Ok(FieldValue::Name(text.to_owned())),
            _ => field.parse(text),
        }),
    }
}

/// What was typed of a field.
fn typed(matches: &ArgMatches, field: Field) -> Option<FieldValue> {
    let key = field.key();
    match field.kind() {
        Kind::Truth => matches.get_one(key).copied().map(FieldValue::Truth),
        Kind::Sizes => matches.get_many(key).map(|sizes| FieldValue::Sizes(sizes.copied().collect())),
        Kind::Size | Kind::Name => matches.get_one(key).cloned(),
    }
}

impl Args for LayoutFlags {
    fn augment_args(command: Command) -> Command {
        command.args(fields().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LayoutFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let said = fields().filter_map(|field| Some((field, typed(matches, field)?)));
        Ok(Self(said.fold(LayoutFile::default(), |file, (field, value)| file.with(field, value))))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0 = Self::from_arg_matches(matches)?.0.over(&self.0);
        Ok(())
    }
}
