//! What decides a study, and the rules that it keeps.

use std::path::PathBuf;
use std::sync::Arc;

use quadrille_checkpoint::Checkpoint;
use quadrille_data::{Goldfish, InputFormat, TokenizerChoice};
use quadrille_engine::Hyper;
use quadrille_run::{CollectivesSpec, DataSpec, OptimizerSpec, RunSpec};
use quadrille_spec::{Layout, Model};

use crate::StudyError;
use crate::refusal::{Refusal, Setting};

/// Everything that decides a study.
///
/// The model warms up on other text, then sees every document of a bucket as often as [`Self::epochs`] says. It is then given
/// the beginning of every document and writes the last tokens, always the likeliest one. A document is memorised if all of
/// them are right.
pub struct StudySpec {
    /// What is trained; it reads tokens.
    pub model: Model,
    /// How a step is spread over ranks, with its batch and the length of documents.
    pub layout: Layout,
    /// The parameters with which all runs begin, of this model; `None`: initial values, drawn by the seed.
    pub from: Option<Arc<Checkpoint>>,
    /// What the optimizer is told; the rate rises over [`Self::warmup_steps`].
    pub optimizer: OptimizerSpec,
    /// Keys initial values, the choice of documents and their order.
    pub seed: u64,
    /// How often the documents of each bucket are seen: a bucket for every number, no two alike. Those of 0 epochs are never
    /// seen: what is right there is no memory of this training.
    pub epochs: Vec<u32>,
    /// Documents in each bucket.
    pub documents_per_bucket: u32,
    /// Steps on other text first.
    pub warmup_steps: u64,
    /// Steps after that; `None`: as many as the documents fill.
    pub steps: Option<u64>,
    /// Tokens at the end of each document that the model has to write.
    pub generate_tokens: usize,
    /// A run for each: `None` learns all tokens.
    pub losses: Vec<Option<Goldfish>>,
    /// Where documents are from.
    pub text: TextSpec,
    /// How collectives run.
    pub collectives: CollectivesSpec,
    /// Threads of each rank; `None`: as many as there are cores for it.
    pub threads: Option<usize>,
    /// Seconds after which a collective or a message that waits for a rank stops the job.
    pub timeout: f64,
    /// A folder in which the checkpoints of all runs are kept; `None`: they are removed.
    pub out: Option<PathBuf>,
}

/// Where documents are from.
#[derive(Debug, Clone, PartialEq)]
pub struct TextSpec {
    /// Text, JSON lines, Parquet, or tokens; none: a built-in corpus, cut into documents. Documents that are long enough are put
    /// into buckets at random, the first tokens of each; the rest is the other text.
    pub paths: Vec<PathBuf>,
    /// Whose tokens; `None`: as a run chooses.
    pub tokenizer: Option<TokenizerChoice>,
    /// The field of JSON lines, or column of Parquet files, that holds the text.
    pub text_field: String,
    /// Format of files that do not show theirs, text or token ids without a header.
    pub format: InputFormat,
    /// Whether files that are no text are read all the same.
    pub binary: bool,
    /// True if lines or rows without a text are skipped.
    pub skip_bad_lines: bool,
    /// The folder for tokenised text.
    pub cache: PathBuf,
}

impl Default for TextSpec {
    fn default() -> Self {
        let text_field = DataSpec::TEXT_FIELD.to_owned();
        let cache = DataSpec::CACHE.into();
        Self {
            paths: Vec::new(),
            tokenizer: None,
            text_field,
            format: InputFormat::Auto,
            binary: false,
            skip_bad_lines: false,
            cache,
        }
    }
}

impl StudySpec {
    /// The epochs where nobody says any: 6 are the most of the published study; small models need more.
    pub const EPOCHS: [u32; 4] = [0, 6, 20, 60];
    /// The learning rate of small models that begin with initial values.
    pub const RATE: f64 = 5e-3;
    /// That of models that go on from a checkpoint: the published study's.
    pub const PUBLISHED_RATE: f64 = 3e-4;

    /// A study on the built-in corpus, without and with the goldfish loss, from initial values on.
    pub fn new(model: Model, layout: Layout) -> Self {
        Self {
            model,
            layout,
            from: None,
            optimizer: Hyper { learning_rate: Self::RATE, ..Hyper::default() }.into(),
            seed: RunSpec::SEED,
            epochs: Self::EPOCHS.to_vec(),
            documents_per_bucket: 16,
            warmup_steps: 100,
            steps: None,
            generate_tokens: 50,
            losses: vec![None, Some(Goldfish::PUBLISHED)],
            text: TextSpec::default(),
            collectives: CollectivesSpec::default(),
            threads: None,
            timeout: RunSpec::TIMEOUT,
            out: None,
        }
    }

    /// The model must read tokens, and have room for what is to be written.
    ///
    /// # Errors
    /// A model of patches; more tokens to write than a document leaves for its beginning; a hash of more tokens than there are.
    pub(crate) fn check(&self) -> Result<(), StudyError> {
        let seq_len = self.layout.seq_len;
        let tokens = self.generate_tokens;
        if self.model.patch_values.is_some() {
            return Err(Refusal::new(format!(
                "{} reads patches of numbers, not text: it writes none; use a model with a vocabulary",
                self.model.name
            ))
            .into());
        }
        if tokens >= seq_len {
            let refusal = Refusal::of(Setting::GenerateTokens).text(format!(
                " {tokens}: documents have {seq_len} tokens, and the model is given the beginning of them; use {} at most, or \
                 a longer ",
                seq_len - 1
            ));
            return Err(refusal.name(Setting::SeqLen).into());
        }
        match self.losses.iter().flatten().find(|goldfish| goldfish.context() > seq_len) {
            Some(goldfish) => {
                let refusal = Refusal::of(Setting::Goldfish).text(format!(
                    " {goldfish}: documents of {seq_len} tokens have none with {} before it; use an h of {seq_len} at most, \
                     or a longer ",
                    goldfish.context()
                ));
                Err(refusal.name(Setting::SeqLen).into())
            }
            None => Ok(()),
        }
    }
}
