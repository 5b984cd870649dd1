//! The flags of a layout's fields, made from their table.

use std::path::{Path, PathBuf, absolute};

use clap::builder::ArgAction;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};
use quadrille_run::{OpenLayout, StatesSpec};
use quadrille_spec::{Field, FieldValue, Kind, LayoutFile, Offload, SpecError};

use crate::parse::whole;

/// What was typed of the fields of a layout, but for those whose flags mean more, or another thing in each command: the
/// grid and the type of values.
#[derive(Debug, Clone)]
pub struct LayoutFlags {
    /// By field.
    pub said: LayoutFile,
    /// Where offloaded states lie, if that was typed: no matter of the layout, in which all places are one.
    pub states: Option<StatesSpec>,
}

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
        Kind::Sizes => flag.action(ArgAction::Append).value_delimiter(',').value_parser(whole::<usize>(..)),
        Kind::Size | Kind::Length | Kind::Batch | Kind::Name => {
            flag.value_parser(move |text: &str| match (field, text) {
                (Field::Recompute, OpenLayout::LEAST_INTERVAL) => Ok(FieldValue::Name(text.to_owned())),
                _ => field.parse(text),
            })
        }
    }
}

/// What was typed of a field.
fn typed(matches: &ArgMatches, field: Field) -> Option<FieldValue> {
    let key = field.key();
    match field.kind() {
        Kind::Truth => matches.get_one(key).copied().map(FieldValue::Truth),
        Kind::Sizes => matches.get_many(key).map(|sizes| FieldValue::Sizes(sizes.copied().collect())),
        Kind::Size | Kind::Length | Kind::Batch | Kind::Name => matches.get_one(key).cloned(),
    }
}

/// Fields that a search chooses where nothing is said of them.
const SEARCHED: [Field; 11] = [
    Field::Activations,
    Field::Linear,
    Field::ExpertsOver,
    Field::Microbatch,
    Field::Schedule,
    Field::Chunks,
    Field::MicrobatchGroup,
    Field::Recompute,
    Field::Zero,
    Field::KeepWeights,
    Field::OverlapChunks,
];

/// A flag of a command that searches: what is searched has no other default.
pub fn searched(flag: Arg) -> Arg {
    if !SEARCHED.iter().any(|field| field.key() == flag.get_id().as_str()) {
        return flag;
    }
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let said = help.split(" [default: ").next().unwrap_or_default();
    flag.help(format!("{said} [default: searched]"))
}

/// The flag of offloading of a command that runs steps: its states may lie in files.
pub fn offload_to_folder(flag: Arg) -> Arg {
    let flag = flag.value_name("none|host|DIR").help(
        "Where the optimizer's states lie: none (on the device), host (in the host's memory) or a folder (in a file for each \
         rank, which is gone when the command ends); from there they come in buckets, e.g. --offload /scratch [default: none]",
    );
    flag.value_parser(|text: &str| match Field::Offload.parse(text) {
        Err(_) if Path::new(text).is_dir() => Ok(FieldValue::Name(text.to_owned())),
        Err(SpecError::Unknown { what, name, mut known }) => {
            known.push("a folder that is there".to_owned());
            Err(SpecError::Unknown { what, name, known })
        }
        read => read,
    })
}

/// What was typed of offloading as a layout has it, and the place: what is no name is a folder.
fn offloaded(typed: FieldValue) -> (FieldValue, StatesSpec) {
    match typed {
        FieldValue::Name(text) if Field::Offload.parse(&text).is_err() => (
            FieldValue::Name(Offload::Host.to_string()),
            StatesSpec::Files(absolute(&text).unwrap_or_else(|_| PathBuf::from(&text))),
        ),
        named => (named, StatesSpec::Memory),
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
        let mut file = LayoutFile::default();
        let mut states = None;
        for (field, value) in said {
            let value = match field {
                Field::Offload => {
                    let (value, place) = offloaded(value);
                    states = Some(place);
                    value
                }
                _ => value,
            };
            file = file.with(field, value);
        }
        Ok(Self { said: file, states })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let Self { said, states } = Self::from_arg_matches(matches)?;
        *self = Self { said: said.over(&self.said), states: states.or(self.states.take()) };
        Ok(())
    }
}
