//! A question as the page asks it.

use std::fmt::Display;
use std::str::FromStr;

use quadrille_cost::native::{Learned, Numbers};
use quadrille_plan::native::{Answer, Bound, Cancel, Nothing, Question, TOLERANCE, Wanted};
use quadrille_report::plan::{asked_document, drawing};
use quadrille_run::{BudgetSpec, SaidLayout, SearchSpec, layout_of_json};
use quadrille_spec::{Cluster, Field, LayoutFile, Model, SpecError, quantities};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::words::in_words;

/// Sequences of a step at most: a layout of more passes takes seconds to price, and nobody can end that.
const MOST_SEQUENCES: usize = 1 << 16;

/// Looks ([`Question::limit`]) of the second answer; the first is of usual layouts alone, and is there at once for who changes a
/// question. Counts and no times: a busy machine answers later, and the same.
const LOOKS: u64 = 1 << 14;

/// So many times as many looks has each later answer, so that all of them together take little longer than the whole one.
const TIMES: u64 = 8;

/// Layouts that the page shows.
const TOP: usize = 10;

/// The fields of the page's question, as they were typed; those that say nothing are left out. Who writes them without the page may
/// write numbers as numbers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    model: Option<String>,
    /// The text of a `config.json`, in place of `model`.
    config: Option<String>,
    cluster: Option<String>,
    #[serde(default, deserialize_with = "typed")]
    gpus: Option<String>,
    #[serde(default, deserialize_with = "typed")]
    global_batch: Option<String>,
    #[serde(default, deserialize_with = "typed")]
    seq_len: Option<String>,
    framework: Option<String>,
    products: Option<String>,
    #[serde(default, deserialize_with = "typed")]
    max_x: Option<String>,
    #[serde(default, deserialize_with = "typed")]
    max_pipe: Option<String>,
    reserve: Option<String>,
    #[serde(default, deserialize_with = "typed")]
    tokens: Option<String>,
    #[serde(default, deserialize_with = "typed")]
    days: Option<String>,
    #[serde(default, deserialize_with = "typed")]
    price_per_hour: Option<String>,
    flops_convention: Option<String>,
    /// By how much longer than the fastest step that of a simpler layout may be which is advised.
    slower: Option<String>,
    /// `all`: variants of a layout are wanted too.
    variants: Option<String>,
    /// Which answer is wanted: 0 is the first, and each later one has looked at more, until one has looked at everything; `None`: the
    /// whole answer.
    #[serde(default)]
    round: Option<u32>,
}

/// Reads a number as it is typed, or as JSON has it.
fn typed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "write a number, e.g. 64 or \"64\"")]
    enum Typed {
        Text(String),
        Number(serde_json::Number),
    }
    let typed = Option::<Typed>::deserialize(deserializer)?;
    Ok(typed.map(|typed| match typed {
        Typed::Text(text) => text,
        Typed::Number(number) => number.to_string(),
    }))
}

/// A layout of an answer, which is to be drawn.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Chosen {
    /// What was asked.
    question: Asked,
    /// As the answer has it.
    layout: Value,
}

impl Chosen {
    /// The mesh and the passes of its step, unless it is cancelled.
    pub(crate) fn drawn(self, cancel: &Cancel) -> Result<Value, String> {
        let question = self.question.question()?;
        let file = layout_of_json(self.layout).map_err(|error| format!("layout: {error}"))?;
        let layout = file.validate(&question.model).map_err(text)?;
        let sizes = [layout.grid.ranks(), layout.global_batch, layout.seq_len];
        if sizes != [question.devices, question.global_batch, question.seq_len] {
            return Err("layout: it has other devices, sequences or tokens than the question".to_owned());
        }
        drawing(&question.setting().map_err(text)?, &layout, cancel).map_err(text)
    }
}

impl Asked {
    /// The same question, whose whole answer is wanted.
    pub(crate) fn whole(&self) -> Self {
        Self { round: None, ..self.clone() }
    }

    /// Looks of the wanted answer.
    fn limit(&self) -> u64 {
        match self.round {
            None => u64::MAX,
            Some(0) => 0,
            Some(round) => LOOKS.saturating_mul(TIMES.saturating_pow(round - 1)),
        }
    }

    /// Searches until it has looked at as much as the wanted answer does, or is cancelled; what was found as a page shows it, or why
    /// nothing was. An answer that is not the whole one may have no layouts yet and is not explained, nor is a layout whose prices
    /// take long. What questions before have learned serves this one.
    pub(crate) fn answer(&self, cancel: Cancel, learned: &Learned) -> Result<Value, String> {
        let limit = Some(self.limit());
        let question = Question { limit, cancel, learned: learned.clone(), ..self.question()? };
        let tolerance = Some(self.tolerance()?);
        let wanted = Wanted {
            top: TOP,
            variants: self.variants()?,
            tolerance,
            brief: self.round == Some(0),
            ..Wanted::default()
        };
        let mut answer = match Answer::new(&question, &wanted) {
            Err(Nothing::Stopped { .. }) if self.round.is_some() && !question.cancel.is_cancelled() => {
                return Ok(json!({ "stopped": true, "plans": [] }));
            }
            answer => answer.map_err(text)?,
        };
        if !(answer.is_long() || answer.found.stopped) {
            answer.explain().map_err(text)?;
        }
        let mut document = asked_document(&answer).map_err(text)?;
        let refused = [("refusals", "example"), ("exports", "refused")];
        for (entries, reason) in refused {
            let entries = document[entries].as_array_mut().into_iter().flatten();
            for reason in entries.filter_map(|entry| entry.get_mut(reason)) {
                *reason = reason.as_str().map_or(Value::Null, |said| in_words(said).into());
            }
        }
        Ok(document)
    }

    /// True if variants are wanted.
    fn variants(&self) -> Result<bool, String> {
        match self.variants.as_deref().map(str::trim) {
            None => Ok(false),
            Some("all") => Ok(true),
            Some(said) => {
                Err(format!("`variants` {said}: all are shown, or the best of each grid; type all, or leave it out"))
            }
        }
    }

    /// By which part of the fastest's time a simpler layout may be slower.
    fn tolerance(&self) -> Result<f64, String> {
        let Some(said) = &self.slower else { return Ok(TOLERANCE) };
        let percent = said.trim().strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok());
        let part = percent.map(|percent| percent / 100.0).filter(|part| (0.0..=10.0).contains(part));
        part.ok_or_else(|| format!("`slower` {said}: it is a part of the fastest's, up to 1000%; type e.g. 5%"))
    }

    fn question(&self) -> Result<Question, String> {
        // A preset, whatever files have its name.
        let cluster = Cluster::preset(self.cluster.as_deref().unwrap_or(SearchSpec::CLUSTER)).map_err(text)?;
        let size = |choices: LayoutFile, field: Field, said: &Option<String>| {
            let Some(said) = said else { return Ok(choices) };
            let size = field.parse(said).map_err(|error| format!("`layout.{}` {said}: {error}", field.key()))?;
            Ok::<_, String>(choices.with(field, size))
        };
        let choices = size(LayoutFile::default(), Field::GlobalBatch, &self.global_batch)?;
        let choices = size(choices, Field::SeqLen, &self.seq_len)?;
        let most = [("x", &self.max_x), ("pipe", &self.max_pipe)];
        let most = most.into_iter().filter_map(|(axis, most)| Some((Bound::Max, format!("{axis}={}", most.as_ref()?))));
        let spec = SearchSpec {
            devices: whole("search.devices", self.gpus.as_ref())?.map(|devices| vec![devices]),
            framework: self.framework.clone(),
            numbers: Numbers { products: parsed("search.products", self.products.as_ref())?, ..Numbers::default() },
            constraints: most.collect(),
            reserve: parsed("search.memory_reserve", self.reserve.as_ref())?,
            tokens: self.tokens.as_ref().map(|said| amount("search.tokens", said)).transpose()?,
            price_per_hour: real("search.price_per_hour", self.price_per_hour.as_ref())?,
            flops_convention: parsed("search.flops_convention", self.flops_convention.as_ref())?.unwrap_or_default(),
            budget: BudgetSpec { days: real("search.days", self.days.as_ref())?, ..BudgetSpec::default() },
            ..SearchSpec::default()
        };
        let layout = SaidLayout { choices, ..SaidLayout::default() };
        let question = spec.question_on(cluster, self.described_model()?, &layout).map_err(text)?;
        match question.global_batch {
            ..=MOST_SEQUENCES => Ok(question),
            batch => Err(format!(
                "`layout.global_batch` {batch}: this page plans at most {MOST_SEQUENCES} sequences; ask `quadrille plan`"
            )),
        }
    }

    fn described_model(&self) -> Result<Model, String> {
        match (&self.config, &self.model) {
            (Some(config), _) => Model::from_hugging_face(config, &[]).map_err(|error| format!("config.json: {error}")),
            (None, Some(name)) => Model::preset(name).map_err(text),
            (None, None) => Err("no model is named; choose one, or paste a config.json".to_owned()),
        }
    }
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// A whole number that was typed, of a field that messages name by this key.
fn whole(key: &str, said: Option<&String>) -> Result<Option<usize>, String> {
    let read =
        |said: &String| said.trim().parse().map_err(|_| format!("`{key}` {said}: it is no whole number; type e.g. 64"));
    said.map(read).transpose()
}

/// A number that was typed.
fn real(key: &str, said: Option<&String>) -> Result<Option<f64>, String> {
    let read =
        |said: &String| said.trim().parse().map_err(|_| format!("`{key}` {said}: it is no number; type e.g. 2.5"));
    said.map(read).transpose()
}

/// An amount that was typed, as the command line reads it.
fn amount(key: &str, said: &str) -> Result<f64, String> {
    quantities::amount(said.trim()).map_err(|error| format!("`{key}` {said}: {error}"))
}

/// A value that was typed.
fn parsed<T: FromStr<Err = SpecError>>(key: &str, said: Option<&String>) -> Result<Option<T>, String> {
    let parse = |said: &String| {
        said.trim().parse().map_err(|error| match error {
            // The field and what was typed are named already.
            SpecError::Invalid { rule, remedy, .. } => format!("`{key}` {said}: {rule}; {remedy}"),
            error => format!("`{key}` {said}: {error}"),
        })
    };
    said.map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Asked {
        serde_json::from_str(text).unwrap()
    }

    fn refused(text: &str) -> String {
        in_words(&asked(text).answer(Cancel::default(), &Learned::default()).unwrap_err())
    }

    #[test]
    fn a_question_has_the_answer_of_the_same_search() {
        let document = asked(
            r#"{"model":"gpt2-1558m","cluster":"dgx-a100","gpus":"16","global_batch":"64","max_x":"2","reserve":"10%",
                "tokens":"1e9","price_per_hour":"2"}"#,
        );
        let document = document.answer(Cancel::default(), &Learned::default()).unwrap();
        assert_eq!((document["gpus"].as_u64(), document["global_batch"].as_u64()), (Some(16), Some(64)));
        let plans = document["plans"].as_array().unwrap();
        let sizes = |plan: &Value| plan["layout"]["grid"].as_str().unwrap().to_owned();
        assert!(plans.iter().all(|plan| ["x=1,", "x=2,"].iter().any(|size| sizes(plan).starts_with(size))));
        let best = &document["advised"]["plan"];
        assert!(best["cost"].as_f64().unwrap() > 0.0 && document["reserved_bytes"].as_u64().unwrap() > 4_000_000_000);
        assert_eq!(document["exports"].as_array().unwrap().len(), 5);
        assert!(document["explanation"]["sensitivities"].is_array());
    }

    #[test]
    fn numbers_are_read_as_text_and_as_numbers() {
        let text = r#"{"model":"gpt2-124m","gpus":"8","global_batch":"64","tokens":"3e11","days":"2.5","max_x":"2"}"#;
        let numbers = r#"{"model":"gpt2-124m","gpus":8,"global_batch":64,"tokens":300000000000,"days":2.5,"max_x":2}"#;
        let [text, numbers] = [text, numbers].map(|said| {
            let question = asked(said).question().unwrap();
            (question.devices, question.global_batch, question.tokens)
        });
        assert_eq!(text, numbers);
        // As the command line reads them.
        for (said, tokens) in [("300B", 3e11), ("15T", 15e12), (" 1.5 t ", 1.5e12)] {
            let text = format!(r#"{{"model":"gpt2-124m","gpus":"8","tokens":"{said}"}}"#);
            assert_eq!(asked(&text).question().unwrap().tokens, Some(tokens), "{said}");
        }
        assert_eq!(asked(r#"{"gpus":null}"#), Asked::default());
        let refused = serde_json::from_str::<Asked>(r#"{"gpus":[8]}"#).unwrap_err().to_string();
        assert!(refused.contains("write a number, e.g. 64"), "{refused}");
    }

    #[test]
    fn answers_get_better_until_one_is_whole_and_explained() {
        let of = |gpus: &str, batch: &str| {
            let text = format!(
                r#"{{"model":"gpt3-175b","cluster":"selene","gpus":"{gpus}","global_batch":"{batch}","round":0}}"#
            );
            asked(&text).answer(Cancel::default(), &Learned::default()).unwrap()
        };
        // Usual layouts are not all, in any build on any machine.
        let found = of("16384", "16384");
        assert!(found["stopped"].as_bool() == Some(true) && found.get("explanation").is_none());
        assert!(!found["plans"].as_array().unwrap().is_empty());
        let rounds = |round: u32| {
            let text = format!(
                r#"{{"model":"gpt2-124m","cluster":"dgx-a100","gpus":"8","global_batch":"64","round":{round}}}"#
            );
            asked(&text).answer(Cancel::default(), &Learned::default()).unwrap()
        };
        let all: Vec<Value> = (0..8).map(rounds).collect();
        let is_stopped: Vec<bool> = all.iter().map(|answer| answer["stopped"].as_bool().unwrap()).collect();
        let whole = is_stopped.iter().position(|stopped| !stopped).unwrap();
        assert!(whole > 0 && is_stopped[whole..].iter().all(|stopped| !stopped), "{is_stopped:?}");
        for (answer, is_stopped) in all.iter().zip(&is_stopped) {
            assert_eq!(answer["explanation"].is_null(), *is_stopped);
        }
        let seconds = |answer: &Value| answer["plans"][0]["time_s"].as_f64().unwrap();
        assert!(all.windows(2).all(|two| seconds(&two[1]) <= seconds(&two[0])), "later answers are no slower");
        let again = rounds(0);
        assert_eq!(again["plans"], all[0]["plans"], "however busy the machine is");
        let cancel = Cancel::default();
        cancel.cancel();
        let whole = asked(r#"{"model":"gpt3-175b","cluster":"selene","gpus":"1024","global_batch":"1536"}"#);
        assert!(whole.answer(cancel, &Learned::default()).unwrap_err().contains("cancelled"));
    }

    #[test]
    fn more_patience_advises_layouts_that_are_as_simple_or_simpler() {
        let of = |slower: &str| {
            // A reserve that is asked for: without one the fastest of those that 95% of runs fit into would be advised.
            let text = format!(
                r#"{{"model":"llama3-8b","cluster":"dgx-a100","gpus":"16","global_batch":"64","reserve":"runs:66%",
                "slower":"{slower}"}}"#
            );
            let document = asked(&text).answer(Cancel::default(), &Learned::default()).unwrap();
            let fastest = document["plans"][0]["time_s"].as_f64().unwrap();
            document["advised"]["plan"]["time_s"].as_f64().unwrap() / fastest
        };
        assert_eq!(of("0%"), 1.0, "the fastest");
        let usual = of("3%");
        let patient = of("100%");
        assert!(usual <= 1.03 && patient <= 2.0 && patient > 1.03, "{usual} {patient}");
    }

    #[test]
    fn a_pasted_model_is_planned() {
        let config = include_str!("../../spec/tests/data/hugging_face/gemma-2-2b.json");
        let question =
            serde_json::json!({ "config": config, "cluster": "dgx-h100", "gpus": "8", "global_batch": "64" });
        let found = asked(&question.to_string()).answer(Cancel::default(), &Learned::default()).unwrap();
        assert_eq!((found["model"].as_str(), found["gpus"].as_u64()), (Some("gemma2"), Some(8)));
        // Of the published 2,614,341,888 weights, each read once in a step at least.
        assert!(found["plans"][0]["model_flops"].as_f64().unwrap() > 6.0 * 2.6e9 * 64.0 * 4096.0);
        assert!(refused(r#"{"config":"{}","gpus":"8"}"#).starts_with("config.json: "));
    }

    #[test]
    fn batches_and_lengths_are_read_as_the_command_line_reads_them() {
        let question = |text: &str| asked(text).question().unwrap();
        let tokens = question(r#"{"model":"gpt2-124m","gpus":"8","global_batch":"0.5M","seq_len":"1k"}"#);
        assert_eq!((tokens.global_batch, tokens.seq_len), (512, 1024));
        let plain = question(r#"{"model":"gpt2-124m","gpus":8,"global_batch":512,"flops_convention":"megatron"}"#);
        assert_eq!((plain.global_batch, plain.flops_convention.to_string().as_str()), (512, "megatron"));
        assert!(
            refused(r#"{"model":"gpt2-124m","gpus":8,"global_batch":"1M","seq_len":"1000"}"#)
                .contains("whole sequences")
        );
    }

    /// Alone in changing the folder of the process; what others here read lies nowhere.
    #[test]
    fn a_file_with_the_name_of_a_preset_is_not_read() {
        let folder = std::env::temp_dir().join(format!("quadrille-serve-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["selene", "gpt2-124m"] {
            std::fs::write(folder.join(name), "secret").unwrap();
        }
        let before = std::env::current_dir().unwrap();
        std::env::set_current_dir(&folder).unwrap();
        let question = asked(r#"{"model":"gpt2-124m","cluster":"selene","gpus":"8","global_batch":"64"}"#);
        let answer = question.question();
        std::env::set_current_dir(before).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(answer.unwrap().cluster.name, "selene");
    }

    #[test]
    fn names_are_no_files_and_what_was_typed_is_named() {
        let folder = env!("CARGO_MANIFEST_DIR");
        for (text, parts) in [
            (
                format!(r#"{{"model":"{folder}/../spec/presets/models/gpt2-124m.toml"}}"#),
                ["unknown model", "gpt2-124m"],
            ),
            (
                format!(r#"{{"model":"gpt2-124m","cluster":"{folder}/../spec/presets/clusters/selene.toml"}}"#),
                ["unknown cluster", "selene"],
            ),
            (r#"{"gpus":"8"}"#.to_owned(), ["no model", "config.json"]),
            (r#"{"model":"gpt2-124m","gpus":"eight"}"#.to_owned(), ["“Devices” eight", "whole number"]),
            (r#"{"model":"gpt2-124m","gpus":"0"}"#.to_owned(), ["0", "at least one"]),
            (
                r#"{"model":"gpt2-124m","gpus":"8","global_batch":"7x"}"#.to_owned(),
                ["“Sequences a step” 7x", "whole number"],
            ),
            (
                r#"{"model":"gpt2-124m","gpus":"8","global_batch":"65537"}"#.to_owned(),
                ["“Sequences a step” 65537", "at most 65536"],
            ),
            (
                r#"{"model":"gpt2-124m","gpus":"8","reserve":"100%"}"#.to_owned(),
                ["“Memory kept free” 100%: it is a part", "5%"],
            ),
            (
                r#"{"model":"gpt2-124m","gpus":"8","global_batch":"8","seq_len":"4096"}"#.to_owned(),
                ["“Tokens a sequence” = 4096", "a pasted config.json gives it others"],
            ),
            (r#"{"model":"gpt3-175b","gpus":"8","global_batch":"8"}"#.to_owned(), ["8 devices", "fit"]),
            (r#"{"model":"gpt2-124m","gpus":"8","days":"2"}"#.to_owned(), ["“Done within”", "“Tokens to train on”"]),
            (
                r#"{"model":"gpt2-124m","gpus":"8","tokens":"15TB"}"#.to_owned(),
                ["“Tokens to train on” 15TB", "300B or 15T"],
            ),
            (r#"{"model":"gpt2-124m","gpus":"8","slower":"five"}"#.to_owned(), ["“Slower if simpler” five", "5%"]),
            (r#"{"model":"gpt2-124m","gpus":"8","tokens":"1e15","days":"1"}"#.to_owned(), ["8 devices", "days"]),
        ] {
            let reason = refused(&text);
            assert!(parts.iter().all(|part| reason.contains(part)), "{text}: {reason}");
            assert!(!reason.contains("memory_reserve") && reason.matches("100%").count() < 2, "{text}: {reason}");
        }
        assert!(serde_json::from_str::<Asked>(r#"{"out":"file"}"#).is_err());
    }
}
