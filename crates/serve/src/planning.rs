//! Planning requests of the page: bounds of what a server plans, and answers in rounds.

use std::fmt::Display;

use quadrille_cost::native::Learned;
use quadrille_plan::native::{Answer, Cancel, Nothing, PlanRequest, Question, Resolved, Wanted};
use quadrille_report::plan::{Drawing, PlanPage, PricedLayout};
use quadrille_run::layout_of_json;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::words::in_words;

/// Sequences of a step at most: a layout of more passes takes seconds to price and cannot be cancelled.
const MOST_SEQUENCES: usize = 1 << 16;

/// Layouts of an answer at most.
const MOST_LAYOUTS: usize = 100;

/// Work ([`Question::limit`]) of the second answer; the first is of usual layouts alone, and is there at once after each change of
/// a request. Counts and no times: a busy machine answers later, and the same.
const LOOKS: u64 = 1 << 14;

/// Factor by which the work grows from one answer to the next, so that all of them together take little longer than the whole one.
const TIMES: u64 = 8;

/// Round of answers: 0 is the first, and each later one has looked at more, until one has looked at everything; `None`: the whole
/// answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Round {
    round: Option<u32>,
}

impl Round {
    /// Work of the answer.
    fn limit(self) -> u64 {
        match self.round {
            None => u64::MAX,
            Some(0) => 0,
            Some(round) => LOOKS.saturating_mul(TIMES.saturating_pow(round - 1)),
        }
    }
}

/// An answer that has no layouts yet.
#[derive(Debug, Serialize)]
struct UnfinishedAnswer {
    stopped: bool,
    plans: [PricedLayout; 0],
}

/// Reads a request from a body.
pub(crate) fn request_of(body: &str) -> Result<PlanRequest, String> {
    PlanRequest::from_json(body).map_err(text)
}

/// A layout of an answer, which is to be drawn.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DrawingRequest {
    /// The planning request.
    request: Value,
    /// Layout, as the answer has it.
    layout: Value,
}

impl DrawingRequest {
    /// The mesh and the passes of its step, unless it is cancelled.
    pub(crate) fn drawn(self, cancel: &Cancel) -> Result<Value, String> {
        let question = question(&request_of(&self.request.to_string())?)?;
        let file = layout_of_json(self.layout).map_err(|error| format!("layout: {error}"))?;
        let layout = file.validate(&question.model).map_err(text)?;
        let sizes = [layout.grid.ranks(), layout.global_batch, layout.seq_len];
        if sizes != [question.devices, question.global_batch, question.seq_len] {
            return Err("layout: it has other devices, sequences or tokens than the request".to_owned());
        }
        let drawing = Drawing::new(&question.setting().map_err(text)?, &layout, cancel).map_err(text)?;
        serde_json::to_value(drawing).map_err(text)
    }
}

/// The question of a request, within the server's bounds.
fn question(request: &PlanRequest) -> Result<Question, String> {
    let question = bounded(request)?.question().map_err(text)?;
    check_size(&question)?;
    Ok(question)
}

/// Checks that layouts of a question are priced in a short time.
fn check_size(question: &Question) -> Result<(), String> {
    match question.global_batch {
        ..=MOST_SEQUENCES => Ok(()),
        batch => Err(format!(
            "`layout.global_batch` {batch}: this page plans at most {MOST_SEQUENCES} sequences; ask `quadrille plan`"
        )),
    }
}

/// The request, if it is one that the server answers.
fn bounded(request: &PlanRequest) -> Result<&PlanRequest, String> {
    if request.model.is_none() {
        return Err("no model is named; choose one, or paste a config.json".to_owned());
    }
    let several = request.gpus.len() > 1 || request.nodes.len() > 1;
    if several || request.pareto {
        return Err("`search.devices`: this page plans for one number of devices; ask `quadrille plan`".to_owned());
    }
    match request.top {
        Some(top) if top > MOST_LAYOUTS => {
            Err(format!("top {top}: this page shows at most {MOST_LAYOUTS} layouts; ask `quadrille plan`"))
        }
        _ => Ok(request),
    }
}

/// Searches until it has looked at as much as the wanted round does, or is cancelled; the answer as a page shows it, or why there is
/// none. An answer that is not the whole one may have no layouts yet and is not explained, nor is a layout whose prices take long.
/// Tables of earlier answers serve this one.
pub(crate) fn answer(request: &PlanRequest, round: Round, cancel: &Cancel, learned: &Learned) -> Result<Value, String> {
    if request.search_limit.is_some() && round.round.is_some() {
        return Err("`search.limit`: rounds bound the work of an answer; leave one of them out".to_owned());
    }
    let Resolved { mut question, wanted } = bounded(request)?.resolve(cancel, learned).map_err(text)?;
    check_size(&question)?;
    question.limit = Some(round.limit().min(question.limit.unwrap_or(u64::MAX)));
    let wanted = Wanted { brief: round.round == Some(0), explain: false, ..wanted };
    let mut answer = match Answer::new(&question, &wanted) {
        Err(Nothing::Stopped { .. }) if round.round.is_some() && !question.cancel.is_cancelled() => {
            return serde_json::to_value(UnfinishedAnswer { stopped: true, plans: [] }).map_err(text);
        }
        answer => answer.map_err(text)?,
    };
    if !(answer.is_long() || answer.found.stopped) {
        answer.explain().map_err(text)?;
    }
    let mut page = PlanPage::new(&answer).map_err(text)?;
    page.messages_mut().for_each(|message| *message = in_words(message));
    serde_json::to_value(page).map_err(text)
}

fn text(error: impl Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answered(text: &str, round: Option<u32>) -> Result<Value, String> {
        answer(&request_of(text)?, Round { round }, &Cancel::default(), &Learned::default())
    }

    fn refused(text: &str) -> String {
        in_words(&answered(text, None).unwrap_err())
    }

    #[test]
    fn a_question_has_the_answer_of_the_same_search() {
        let request = r#"{"model":"gpt2-1558m","cluster":"dgx-a100","gpus":"16","global_batch":"64","max":{"x":"2"},
                "memory_reserve":"10%","tokens":"1e9","price_per_hour":"2"}"#;
        let document = answered(request, None).unwrap();
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
        let text =
            r#"{"model":"gpt2-124m","gpus":"8","global_batch":"64","tokens":"3e11","days":"2.5","max":{"x":"2"}}"#;
        let numbers =
            r#"{"model":"gpt2-124m","gpus":8,"global_batch":64,"tokens":300000000000,"days":2.5,"max":{"x":2}}"#;
        let [text, numbers] = [text, numbers].map(|said| {
            let question = question(&request_of(said).unwrap()).unwrap();
            (question.devices, question.global_batch, question.tokens)
        });
        assert_eq!(text, numbers);
        // As the command line reads them.
        for (said, tokens) in [("300B", 3e11), ("15T", 15e12), (" 1.5 t ", 1.5e12)] {
            let text = format!(r#"{{"model":"gpt2-124m","gpus":"8","tokens":"{said}"}}"#);
            assert_eq!(question(&request_of(&text).unwrap()).unwrap().tokens, Some(tokens), "{said}");
        }
        assert_eq!(request_of(r#"{"gpus":null}"#), Ok(PlanRequest::default()));
        let refused = request_of(r#"{"gpus":{"of":8}}"#).unwrap_err();
        assert!(refused.contains("gpus") && refused.contains("a number of devices"), "{refused}");
    }

    #[test]
    fn answers_get_better_until_one_is_whole_and_explained() {
        let of = |gpus: &str, batch: &str| {
            let text =
                format!(r#"{{"model":"gpt3-175b","cluster":"selene","gpus":"{gpus}","global_batch":"{batch}"}}"#);
            answered(&text, Some(0)).unwrap()
        };
        // Usual layouts are not all, in any build on any machine.
        let found = of("16384", "16384");
        assert!(found["stopped"].as_bool() == Some(true) && found.get("explanation").is_none());
        assert!(!found["plans"].as_array().unwrap().is_empty());
        let rounds = |round: u32| {
            answered(r#"{"model":"gpt2-124m","cluster":"dgx-a100","gpus":"8","global_batch":"64"}"#, Some(round))
                .unwrap()
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
        let whole = PlanRequest::new("gpt3-175b", "selene", 1024, 1536);
        let error = answer(&whole, Round::default(), &cancel, &Learned::default()).unwrap_err();
        assert!(error.contains("cancelled"), "{error}");
    }

    #[test]
    fn more_patience_advises_layouts_that_are_as_simple_or_simpler() {
        let of = |slower: &str| {
            // A reserve that is asked for: without one the fastest of those that 95% of runs fit into would be advised.
            let text = format!(
                r#"{{"model":"llama3-8b","cluster":"dgx-a100","gpus":"16","global_batch":"64",
                "memory_reserve":"runs:66%","tolerance":"{slower}"}}"#
            );
            let document = answered(&text, None).unwrap();
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
        let config: Value = serde_json::from_str(config).unwrap();
        let model = json!({ "hugging_face": config });
        let request = json!({ "model": model, "cluster": "dgx-h100", "gpus": "8", "global_batch": "64" });
        let found = answered(&request.to_string(), None).unwrap();
        assert_eq!((found["model"].as_str(), found["gpus"].as_u64()), (Some("gemma2"), Some(8)));
        // Of the published 2,614,341,888 weights, each read once in a step at least.
        assert!(found["plans"][0]["model_flops"].as_f64().unwrap() > 6.0 * 2.6e9 * 64.0 * 4096.0);
        assert!(refused(r#"{"model":{"hugging_face":{}},"gpus":"8"}"#).contains("model_type"));
    }

    #[test]
    fn batches_and_lengths_are_read_as_the_command_line_reads_them() {
        let question = |text: &str| question(&request_of(text).unwrap()).unwrap();
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
        let answer = question(&PlanRequest::new("gpt2-124m", "selene", 8, 64));
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
            (r#"{"model":"gpt2-124m","gpus":"eight"}"#.to_owned(), ["“Devices” = eight", "64..1024"]),
            (r#"{"model":"gpt2-124m","gpus":"0"}"#.to_owned(), ["“Devices” = 0", "64..1024"]),
            (
                r#"{"model":"gpt2-124m","gpus":"8","global_batch":"7x"}"#.to_owned(),
                ["“Sequences a step” = 7x", "whole number"],
            ),
            (
                r#"{"model":"gpt2-124m","gpus":"8","global_batch":"65537"}"#.to_owned(),
                ["“Sequences a step” 65537", "at most 65536"],
            ),
            (r#"{"model":"gpt2-124m","gpus":"8","memory_reserve":"100%"}"#.to_owned(), ["“Memory kept free” = ", "5%"]),
            (
                r#"{"model":"gpt2-124m","gpus":"8","global_batch":"8","seq_len":"4096"}"#.to_owned(),
                ["“Tokens a sequence” = 4096", "a pasted config.json gives it others"],
            ),
            (r#"{"model":"gpt3-175b","gpus":"8","global_batch":"8"}"#.to_owned(), ["8 devices", "fit"]),
            (r#"{"model":"gpt2-124m","gpus":"8","days":"2"}"#.to_owned(), ["“Done within”", "“Tokens to train on”"]),
            (
                r#"{"model":"gpt2-124m","gpus":"8","tokens":"15TB"}"#.to_owned(),
                ["“Tokens to train on” = 15TB", "300B or 15T"],
            ),
            (r#"{"model":"gpt2-124m","gpus":"8","tolerance":"five"}"#.to_owned(), ["“Slower if simpler” = five", "5%"]),
            (r#"{"model":"gpt2-124m","gpus":"8","tokens":"1e15","days":"1"}"#.to_owned(), ["8 devices", "days"]),
        ] {
            let reason = refused(&text);
            assert!(parts.iter().all(|part| reason.contains(part)), "{text}: {reason}");
        }
        assert!(request_of(r#"{"out":"file"}"#).unwrap_err().contains("unknown field `out`"));
    }
}
