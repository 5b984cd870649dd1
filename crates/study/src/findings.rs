//! What a study has found: a table, a document.

use quadrille_data::Goldfish;
use quadrille_report::curve::{CurvePoint, curve};
use quadrille_report::{ReportVersion, Text, table};
use quadrille_run::shown_layout;
use quadrille_run::units::percent;
use quadrille_spec::{Layout, LayoutFile, Model, ModelFile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::StudyError;

/// What a study has found.
#[derive(Debug, Clone)]
pub struct Findings {
    /// What was trained.
    pub model: Model,
    /// How a step was spread over ranks.
    pub layout: Layout,
    /// What the documents were, and how they were seen.
    pub conditions: Conditions,
    /// Where the documents are from, for documents.
    pub data: Value,
    /// What came of each loss, in their order.
    pub runs: Vec<Learned>,
}

/// What the documents are, and how they are seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conditions {
    /// How often the documents of each bucket are seen.
    pub epochs: Vec<u32>,
    /// Documents in each bucket.
    pub documents_per_bucket: u32,
    /// Tokens of a document.
    pub seq_len: usize,
    /// Those at its end that are written.
    pub generate_tokens: usize,
    /// Steps on other text first.
    pub warmup_steps: u64,
    /// All steps, with those.
    pub steps: u64,
    /// What everything was drawn by.
    pub seed: u64,
}

/// What a run has learned.
#[derive(Debug, Clone, PartialEq)]
pub struct Learned {
    /// `None`: all tokens were learned.
    pub goldfish: Option<Goldfish>,
    /// As in [`Conditions::epochs`].
    pub buckets: Vec<Bucket>,
    /// Of every step.
    pub losses: Vec<f64>,
    /// Seconds of training.
    pub training_seconds: f64,
    /// Seconds in which the model wrote.
    pub generation_seconds: f64,
    /// Whether predicted and counted ledgers were equal, in every step and every pass.
    pub ledger_equal: bool,
}

/// How much of its documents a model writes as they are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// How often they were seen.
    pub epochs: u32,
    /// Its documents.
    pub documents: usize,
    /// Documents whose last tokens are all right.
    pub exact: usize,
    /// Mean share of right tokens.
    pub equal_share: f64,
}

impl Bucket {
    /// `equal` are the right tokens of each document, of `tokens` that were to be written.
    pub(crate) fn new(epochs: u32, equal: &[usize], tokens: usize) -> Self {
        let exact = equal.iter().filter(|equal| **equal == tokens).count();
        let equal_share = equal.iter().sum::<usize>() as f64 / (equal.len() * tokens) as f64;
        Self { epochs, documents: equal.len(), exact, equal_share }
    }

    /// Share of documents whose last tokens are all right.
    pub fn exact_share(&self) -> f64 {
        self.exact as f64 / self.documents as f64
    }
}

impl Learned {
    /// What the run is called: `plain loss` or `goldfish k=2,h=13`.
    pub fn name(&self) -> String {
        self.goldfish.map_or("plain loss".to_owned(), |goldfish| format!("goldfish {goldfish}"))
    }

    fn report(&self) -> LearnedReport {
        let bucket = |bucket: &Bucket| BucketReport {
            epochs: bucket.epochs,
            documents: bucket.documents,
            exact: bucket.exact,
            exact_share: bucket.exact_share(),
            equal_share: bucket.equal_share,
        };
        LearnedReport {
            goldfish: self.goldfish.map(|goldfish| goldfish.to_string()),
            buckets: self.buckets.iter().map(bucket).collect(),
            losses: Losses::Every(self.losses.clone()),
            training_s: self.training_seconds,
            generation_s: self.generation_seconds,
            ledger_equal: self.ledger_equal,
            name: None,
        }
    }
}

impl Conditions {
    /// In a line.
    pub fn text(&self) -> String {
        let Conditions { seq_len, generate_tokens, warmup_steps, steps, .. } = self;
        format!(
            "documents of {seq_len} tokens, of which the last {generate_tokens} are written; {warmup_steps} steps on other \
             text, then {} with the documents\n",
            steps - warmup_steps
        )
    }
}

impl Findings {
    /// The findings, where every run has counted what was predicted.
    ///
    /// # Errors
    /// [`StudyError::Ledger`].
    pub fn check(&self) -> Result<&Self, StudyError> {
        if self.runs.iter().all(|run| run.ledger_equal) { Ok(self) } else { Err(StudyError::Ledger) }
    }

    /// A table: the header, then a row for every bucket.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let mut header = vec!["epochs".to_owned(), "documents".to_owned()];
        for run in &self.runs {
            header.extend([format!("memorised, {}", run.name()), "right tokens".to_owned()]);
        }
        let buckets = self.runs.first().map_or(0, |run| run.buckets.len());
        let row = |at: usize| {
            let Bucket { epochs, documents, .. } = self.runs[0].buckets[at];
            let shares = self.runs.iter().flat_map(|run| {
                let bucket = &run.buckets[at];
                [format!("{} ({})", percent(bucket.exact_share()), bucket.exact), percent(bucket.equal_share)]
            });
            [epochs.to_string(), documents.to_string()].into_iter().chain(shares).collect()
        };
        std::iter::once(header).chain((0..buckets).map(row)).collect()
    }

    /// The table and how long it took.
    pub fn text(&self) -> Text {
        let rows = self.rows();
        let header: Vec<&str> = rows[0].iter().map(String::as_str).collect();
        let seconds = |run: &Learned| {
            format!(
                "{}: {:.1} s of training, last loss {:.4}, {:.1} s of writing\n",
                run.name(),
                run.training_seconds,
                run.losses.last().copied().unwrap_or(f64::NAN),
                run.generation_seconds
            )
        };
        Text::from(table(&header, &rows[1..])) + self.runs.iter().map(seconds).collect::<String>()
    }

    /// The report as a document.
    pub fn report(&self) -> MemorizationReport {
        MemorizationReport {
            version: ReportVersion::CURRENT,
            model: ModelFile::of(&self.model),
            layout: shown_layout(&self.layout),
            data: self.data.clone(),
            documents_per_bucket: self.conditions.documents_per_bucket,
            epochs: self.conditions.epochs.clone(),
            generate_tokens: self.conditions.generate_tokens,
            warmup_steps: self.conditions.warmup_steps,
            steps: self.conditions.steps,
            seed: self.conditions.seed,
            runs: self.runs.iter().map(Learned::report).collect(),
            told: None,
        }
    }

    /// The report as its page shows it: with names of the runs, with as many losses as a chart shows, and with the conditions in
    /// words.
    pub fn page(&self) -> MemorizationReport {
        let run = |run: &Learned| LearnedReport {
            losses: Losses::Curve(curve((1..).zip(run.losses.iter().copied()))),
            name: Some(run.name()),
            ..run.report()
        };
        MemorizationReport {
            runs: self.runs.iter().map(run).collect(),
            told: Some(self.conditions.text().trim_end().to_owned()),
            ..self.report()
        }
    }
}

/// How much of its documents a model writes as they are: what `memorize --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemorizationReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Fields of the model's file.
    pub model: ModelFile,
    /// Fields of the layout's file.
    pub layout: LayoutFile,
    /// Identity of the documents' source.
    pub data: Value,
    /// Documents of each bucket.
    pub documents_per_bucket: u32,
    /// How often the documents of each bucket are seen.
    pub epochs: Vec<u32>,
    /// Tokens at the end of a document that are written.
    pub generate_tokens: usize,
    /// Steps on other text first.
    pub warmup_steps: u64,
    /// All steps, with those.
    pub steps: u64,
    /// Seed of all draws.
    pub seed: u64,
    /// The runs, one for each loss.
    pub runs: Vec<LearnedReport>,
    /// The conditions in words, of pages alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<String>,
}

/// A run by one loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LearnedReport {
    /// Rule of the left out tokens; null where all tokens are learned.
    pub goldfish: Option<String>,
    /// Its buckets.
    pub buckets: Vec<BucketReport>,
    /// Mean loss of every step in nats.
    pub losses: Losses,
    /// Seconds of training.
    pub training_s: f64,
    /// Seconds of writing.
    pub generation_s: f64,
    /// True if predicted and counted ledgers were equal, as integers, in every step and pass.
    pub ledger_equal: bool,
    /// Name of the run, of pages alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Losses of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Losses {
    /// Of every step.
    Every(Vec<f64>),
    /// Of as many steps as a chart shows.
    Curve(Vec<CurvePoint>),
}

/// Documents that are seen equally often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BucketReport {
    /// How often they were seen.
    pub epochs: u32,
    /// Number of documents.
    pub documents: usize,
    /// Number of documents whose last tokens are all right.
    pub exact: usize,
    /// The same as a part of all, from 0 to 1.
    pub exact_share: f64,
    /// Mean part of right tokens, from 0 to 1.
    pub equal_share: f64,
}

#[cfg(test)]
mod tests {
    use quadrille_spec::LayoutRequest;

    use super::*;

    fn runs() -> Vec<Learned> {
        let run = |goldfish: Option<&str>, exact: [usize; 2]| {
            let bucket = |(epochs, exact)| Bucket { epochs, documents: 4, exact, equal_share: 0.5 };
            Learned {
                goldfish: goldfish.map(|text| text.parse().unwrap()),
                buckets: [0, 6].into_iter().zip(exact).map(bucket).collect(),
                losses: vec![2.0, 1.5],
                training_seconds: 3.0,
                generation_seconds: 0.25,
                ledger_equal: true,
            }
        };
        vec![run(None, [0, 3]), run(Some("k=2,h=13"), [0, 1])]
    }

    fn findings(runs: Vec<Learned>) -> Findings {
        let model = Model::gpt(1, 8, 2, 256, 8);
        let layout = Layout::new(&model, &LayoutRequest::new("x=1".parse().unwrap(), 2)).unwrap();
        let conditions = Conditions {
            epochs: vec![0, 6],
            documents_per_bucket: 4,
            seq_len: 8,
            generate_tokens: 2,
            warmup_steps: 1,
            steps: 13,
            seed: 1,
        };
        Findings { model, layout, conditions, data: Value::Null, runs }
    }

    #[test]
    fn documents_are_counted_that_are_right_to_the_end() {
        let bucket = Bucket::new(4, &[3, 2, 0, 3], 3);
        assert_eq!(bucket, Bucket { epochs: 4, documents: 4, exact: 2, equal_share: 8.0 / 12.0 });
        assert_eq!(bucket.exact_share(), 0.5);
    }

    #[test]
    fn the_table_has_a_row_for_every_bucket() {
        let text = findings(runs()).text().to_string();
        let expected =
            "epochs  documents  memorised, plain loss  right tokens  memorised, goldfish k=2,h=13  right tokens
0               4               0.0% (0)         50.0%                      0.0% (0)         50.0%
6               4              75.0% (3)         50.0%                     25.0% (1)         50.0%
plain loss: 3.0 s of training, last loss 1.5000, 0.2 s of writing
goldfish k=2,h=13: 3.0 s of training, last loss 1.5000, 0.2 s of writing
";
        assert_eq!(text, expected);
        assert_eq!(findings(runs()[1..].to_vec()).rows()[2], ["6", "4", "25.0% (1)", "50.0%"], "one run alone");
    }

    #[test]
    fn a_page_has_every_bucket_of_every_run() {
        let page = findings(runs()).page();
        let of = |run: usize| {
            let run = &page.runs[run];
            (run.name.as_deref(), run.buckets[1].exact_share, run.losses.clone())
        };
        let losses = Losses::Curve(vec![(1, Some(2.0)), (2, Some(1.5))]);
        assert_eq!(of(0), (Some("plain loss"), 0.75, losses.clone()));
        assert_eq!(of(1), (Some("goldfish k=2,h=13"), 0.25, losses));
        assert!(page.told.unwrap().ends_with("with the documents"));
    }
}
