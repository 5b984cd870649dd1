//! The documents of the buckets, and the text beside them.

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use quadrille_checkpoint::Checkpoint;
use quadrille_data::{
    DataError, DemoCorpus, Documents, Opening, Permutation, Reading, SampleShape, SpecialTokens, TextRules,
    TokenSource, Tokenizer, Windows,
};
use quadrille_report::sources::{self, SourcesReport};
use quadrille_run::{
    DEMO_TOKENS, OnPreparation, RunError, SourceOverview, TokenizerOrigin, TokenizerRule, describe_tokenizer,
    open_files,
};
use quadrille_spec::{Model, RandomStream};
use serde::Serialize;
use serde_json::Value;

use crate::refusal::{Refusal, Setting};
use crate::{StudyError, TextSpec};

/// What is taken of a text.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Documents of all buckets.
    pub documents: usize,
    /// Tokens of each.
    pub seq_len: usize,
    /// Those of them that the model is given: no two documents begin alike.
    pub prompt: usize,
}

/// Documents, and other text.
pub struct Corpus {
    /// Token ids `[documents, seq_len]`, in random order.
    pub documents: Vec<Vec<u32>>,
    /// The text beside them; `None` if less than a sequence is left.
    pub background: Option<Background>,
    /// Where it is all from, for documents.
    pub about: Value,
    /// Files, documents, skipped lines and the tokenizer in lines of text, as a run prints them before it begins.
    pub overview: String,
}

impl Corpus {
    /// Reads the files, of which text is tokenised once, or makes the built-in corpus, and takes documents of it, by `seed`.
    ///
    /// # Errors
    /// Files that cannot be read, or have too few documents that are long enough; tokens that the model does not have.
    pub fn open(
        text: &TextSpec,
        model: &Model,
        checkpoint: Option<&Checkpoint>,
        seed: u64,
        wanted: Wanted,
        on_preparation: OnPreparation,
    ) -> Result<Self, StudyError> {
        let rule = TokenizerRule { choice: text.tokenizer.as_ref(), checkpoint, model };
        let Opened { tokens: source, files, tokenizer } = match text.paths.as_slice() {
            [] => demo(rule, seed, wanted)?,
            paths => read(paths, text, rule, on_preparation)?,
        };
        let chosen = choose(&source, seed, wanted)?;
        let mut taken: Vec<Range<usize>> = chosen.iter().map(|document| document.all.clone()).collect();
        taken.sort_unstable_by_key(|range| range.start);
        let documents = chosen.into_iter().map(|document| document.tokens).collect();
        let overview = sources::text(files.as_slice(), Some(&tokenizer));
        let about = CorpusAbout {
            source: source.path().to_string_lossy().into_owned(),
            tokens: source.len(),
            vocabulary: source.vocabulary().map(|vocabulary| vocabulary.name.to_string()),
            read: SourcesReport::new(files.as_slice(), Some(&tokenizer)),
        };
        let about = serde_json::to_value(about).map_err(RunError::Document)?;
        let shape = SampleShape { seq_len: wanted.seq_len, documents: Documents::Packed, vocab: model.vocab };
        let background = Background::new(&Arc::new(source), &taken, shape, seed)?;
        Ok(Self { documents, background, about, overview })
    }
}

/// Identity of a corpus, for checkpoints.
#[derive(Serialize)]
struct CorpusAbout {
    source: String,
    tokens: usize,
    vocabulary: Option<String>,
    /// The files and the tokenizer, as reports of other commands have them.
    #[serde(flatten)]
    read: SourcesReport,
}

/// Tokens that are open.
struct Opened {
    tokens: TokenSource,
    /// Overview of their files; `None` for the built-in corpus.
    files: Option<SourceOverview>,
    /// The tokenizer and the reason for it.
    tokenizer: String,
}

/// The tokens of files.
fn read(
    paths: &[PathBuf],
    text: &TextSpec,
    rule: TokenizerRule,
    on_preparation: OnPreparation,
) -> Result<Opened, StudyError> {
    let TextSpec { text_field, format, binary, skip_bad_lines, .. } = text;
    let rules = TextRules { field: text_field, format: *format, skip_bad_lines: *skip_bad_lines };
    let (tokenizer, origin) = rule.tokenizer_for(paths, rules)?;
    let reading = Reading {
        tokenizer,
        text_field: text_field.clone(),
        format: *format,
        binary: *binary,
        skip_bad_lines: *skip_bad_lines,
        special: SpecialTokens::default(),
    };
    let opening = Opening { reading: &reading, named: text.tokenizer.is_some(), cache: &text.cache };
    let source = open_files(paths, &opening, rule, on_preparation)?;
    let reads_text = source.files.iter().any(|file| !file.format.is_tokens());
    let tokenizer = if reads_text {
        describe_tokenizer(&reading, origin)?
    } else {
        TokenizerOrigin::of_tokens(source.tokens.vocabulary())
    };
    let files = Some(SourceOverview::of_source(&source));
    Ok(Opened { tokens: source.tokens, files, tokenizer })
}

/// The built-in corpus, of which half or less goes into buckets.
fn demo(rule: TokenizerRule, seed: u64, wanted: Wanted) -> Result<Opened, StudyError> {
    let (tokenizer, origin) = rule.tokenizer()?;
    rule.check(&tokenizer.to_string(), &tokenizer.vocabulary())?;
    if matches!(tokenizer, Tokenizer::Json(_)) {
        let rule = ": the built-in corpus is spelled by gpt2 or bytes; use one of these, or give text with ";
        let refusal = Refusal::of(Setting::Tokenizer).text(format!(" {tokenizer}{rule}"));
        return Err(refusal.name(Setting::Data).into());
    }
    let tokens = DEMO_TOKENS.max(2 * wanted.documents * wanted.seq_len);
    let described = format!("{tokenizer}, {}", origin.reason());
    let tokens = TokenSource::from(DemoCorpus::new(seed, tokenizer, tokens));
    Ok(Opened { tokens, files: None, tokenizer: described })
}

/// A document of a bucket.
struct Chosen {
    /// The positions of all its tokens.
    all: Range<usize>,
    /// The first ones, as many as a sequence has.
    tokens: Vec<u32>,
}

/// Documents that begin differently, in random order.
fn choose(source: &TokenSource, seed: u64, wanted: Wanted) -> Result<Vec<Chosen>, StudyError> {
    let Wanted { documents, seq_len, prompt } = wanted;
    // The built-in corpus has no documents: they are cut out of it.
    let cut = matches!(source, TokenSource::Demo(_));
    let count = if cut { source.len() / seq_len } else { source.documents()? };
    let order = Permutation::new(RandomStream::new(seed, "memorised documents"), count as u64);
    let mut chosen = Vec::with_capacity(documents);
    let mut beginnings = HashSet::new();
    for place in 0..count as u64 {
        let document = order.at(place) as usize;
        let (all, content) = if cut {
            (document * seq_len..(document + 1) * seq_len, document * seq_len..(document + 1) * seq_len)
        } else {
            (source.document(document)?, source.content(document)?)
        };
        if content.len() < seq_len {
            continue;
        }
        let mut tokens = vec![0; seq_len];
        source.window(content.start, &mut tokens)?;
        if beginnings.insert(tokens[..prompt].to_vec()) {
            chosen.push(Chosen { all, tokens });
        }
        if chosen.len() == documents {
            return Ok(chosen);
        }
    }
    let rule = format!(
        "{}: of its {count} documents {} have at least {seq_len} tokens and begin differently, and all buckets need \
         {documents}; use fewer ",
        source.path().display(),
        chosen.len(),
    );
    let refusal = Refusal::new(rule).name(Setting::DocumentsPerBucket).text(", a shorter ").name(Setting::SeqLen);
    Err(refusal.text(", or more ").name(Setting::Data).into())
}

/// The text between the documents of the buckets.
pub struct Background {
    /// The samples before each run of text, and its own.
    runs: Vec<(u64, Windows)>,
    samples: u64,
    stream: RandomStream,
}

impl Background {
    /// The windows of `source` outside of `taken`, which is in order; `None` if there are none.
    fn new(
        source: &Arc<TokenSource>,
        taken: &[Range<usize>],
        shape: SampleShape,
        seed: u64,
    ) -> Result<Option<Self>, DataError> {
        let begins = std::iter::once(0).chain(taken.iter().map(|range| range.end));
        let ends = taken.iter().map(|range| range.start).chain([source.len()]);
        let mut runs = Vec::new();
        let mut samples = 0;
        for (begin, end) in begins.zip(ends).filter(|(begin, end)| begin + shape.seq_len < *end) {
            let windows = Windows::new(Arc::clone(source), begin..end, shape)?;
            let before = samples;
            samples += windows.len();
            runs.push((before, windows));
        }
        let stream = RandomStream::new(seed, "text beside memorised documents");
        Ok((samples > 0).then_some(Self { runs, samples, stream }))
    }

    /// Fills in sample `number`, of endlessly many: every window once, in random order, then again in another.
    pub fn read(&self, number: u64, tokens: &mut [u32], targets: &mut [u32]) -> Result<(), DataError> {
        let order = Permutation::new(self.stream.substream(number / self.samples), self.samples);
        let window = order.at(number % self.samples);
        let run = self.runs.partition_point(|(before, _)| *before <= window) - 1;
        let (before, windows) = &self.runs[run];
        windows.read(window - before, tokens, targets)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    const WANTED: Wanted = Wanted { documents: 6, seq_len: 8, prompt: 5 };

    fn model() -> Model {
        Model::gpt(1, 8, 2, 256, 8)
    }

    /// What is taken of files in a folder by a seed.
    fn open(folder: &Path, files: &[&str], model: &Model, seed: u64, wanted: Wanted) -> Result<Corpus, StudyError> {
        let paths = files.iter().map(|name| folder.join(name)).collect();
        let text = TextSpec { paths, cache: folder.to_owned(), ..TextSpec::default() };
        Corpus::open(&text, model, None, seed, wanted, &|_, _| {})
    }

    /// All sequences of the background, each once.
    fn windows(background: &Background) -> Vec<Vec<u32>> {
        let read = |number| {
            let mut tokens = vec![0; 8];
            let mut targets = vec![0; 8];
            background.read(number, &mut tokens, &mut targets).unwrap();
            tokens.extend(&targets[7..]);
            tokens
        };
        (0..background.samples).map(read).collect()
    }

    #[test]
    fn documents_are_distinct_and_the_other_text_holds_nothing_of_them() {
        let folder = tempfile::tempdir().unwrap();
        // Every document has a byte of its own; short ones and repeated ones are among them.
        let line =
            |byte: u8, length: usize| format!("{{\"text\": \"{}\"}}\n", (byte as char).to_string().repeat(length));
        let lines: String = (b'A'..=b'Z').map(|byte| line(byte, if byte % 3 == 0 { 5 } else { 30 })).collect();
        std::fs::write(folder.path().join("a.jsonl"), format!("{lines}{}", line(b'A', 20))).unwrap();
        let open = |seed, wanted| open(folder.path(), &["a.jsonl"], &model(), seed, wanted);
        let corpus = open(3, WANTED).unwrap();
        let bytes: HashSet<u32> = corpus.documents.iter().map(|tokens| tokens[0]).collect();
        assert_eq!((corpus.documents.len(), bytes.len()), (6, 6));
        for tokens in &corpus.documents {
            assert!(tokens.len() == 8 && tokens.iter().all(|token| *token == tokens[0]) && tokens[0] % 3 != 0);
        }
        let other: HashSet<u32> = windows(&corpus.background.unwrap()).concat().into_iter().collect();
        // `A` stands twice in the file.
        assert!(other.iter().all(|byte| *byte == 65 || !bytes.contains(byte)), "{bytes:?} {other:?}");
        assert!(other.len() > 15);
        assert_ne!(open(4, WANTED).unwrap().documents, corpus.documents);
        let Err(error) = open(3, Wanted { documents: 40, ..WANTED }) else { panic!("there are too few") };
        let message = error.to_string();
        assert!(message.contains("of its 27 documents 17 have at least 8 tokens"), "{message}");
    }

    #[test]
    fn the_built_in_corpus_is_cut_into_documents_and_other_text() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = Wanted { documents: 400, seq_len: 64, prompt: 40 };
        let corpus = open(folder.path(), &[], &Model::gpt(1, 8, 2, 256, 64), 1, wanted).unwrap();
        let beginnings: HashSet<&[u32]> = corpus.documents.iter().map(|tokens| &tokens[..40]).collect();
        assert_eq!(beginnings.len(), 400);
        assert_eq!(corpus.overview, "tokenizer bytes, by default for the model's vocabulary\n");
        let background = corpus.background.unwrap();
        // Nearly all of the rest; what is left of a run is less than a window.
        let windows = (DEMO_TOKENS / 64) as u64 - 400;
        assert!(background.samples <= windows && background.samples > windows - 402, "{}", background.samples);
    }

    #[test]
    fn skipped_lines_are_told_and_kept_with_the_documents() {
        let folder = tempfile::tempdir().unwrap();
        let line = |text: &str| format!("{{\"text\": \"{text}\"}}\n");
        let lines: String = ["abcdefghijk", "bcdefghijkl", "cdefghijklm"].map(line).join("null\n");
        std::fs::write(folder.path().join("a.jsonl"), lines).unwrap();
        let text = TextSpec {
            paths: vec![folder.path().join("a.jsonl")],
            skip_bad_lines: true,
            cache: folder.path().to_owned(),
            ..TextSpec::default()
        };
        let wanted = Wanted { documents: 2, ..WANTED };
        let corpus = Corpus::open(&text, &model(), None, 1, wanted, &|_, _| {}).unwrap();
        for words in
            ["data    a.jsonl: 1 file, 1 of json-lines", "3 documents", "skipped a.jsonl: 2 lines without a text"]
        {
            assert!(corpus.overview.contains(words), "{}", corpus.overview);
        }
        let skipped = &corpus.about["sources"][0]["skipped_lines"][0];
        assert_eq!(
            (&skipped["path"], &skipped["unit"], &skipped["count"]),
            (&json!("a.jsonl"), &json!("line"), &json!(2))
        );
    }

    #[test]
    fn without_other_text_there_is_no_background() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("one.txt"), "abcdefghijklm").unwrap();
        let wanted = Wanted { documents: 1, ..WANTED };
        let corpus = open(folder.path(), &["one.txt"], &model(), 1, wanted).unwrap();
        assert_eq!(corpus.documents, [b"abcdefgh".map(u32::from)]);
        assert_eq!(
            corpus.overview,
            "data    one.txt: 1 file, 1 of text (13 B), 1 document, 14 tokens\n\
             tokenizer bytes, by default for the model's vocabulary; documents begin without BOS\n"
        );
        assert!(corpus.background.is_none());
    }
}
