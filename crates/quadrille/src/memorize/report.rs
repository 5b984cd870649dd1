//! What a study says: a table, a document, a picture.

use quadrille_report::shares::{Bar, Series, Shares};
use quadrille_run::layout_json;
use quadrille_run::units::percent;
use quadrille_step::StepProgram;
use serde_json::{Value, json};

use super::Conditions;
use super::study::{Bucket, Learned};
use crate::output;

/// What a run is called.
fn name(run: &Learned) -> String {
    run.goldfish.map_or("plain loss".to_owned(), |goldfish| format!("goldfish {goldfish}"))
}

/// The header, then a row for every bucket.
pub fn rows(runs: &[Learned]) -> Vec<Vec<String>> {
    let mut header = vec!["epochs".to_owned(), "documents".to_owned()];
    for run in runs {
        header.extend([format!("memorised, {}", name(run)), "right tokens".to_owned()]);
    }
    let buckets = runs.first().map_or(0, |run| run.buckets.len());
    let row = |at: usize| {
        let Bucket { epochs, documents, .. } = runs[0].buckets[at];
        let shares = runs.iter().flat_map(|run| {
            let bucket = &run.buckets[at];
            [format!("{} ({})", percent(bucket.exact_share()), bucket.exact), percent(bucket.equal_share)]
        });
        [epochs.to_string(), documents.to_string()].into_iter().chain(shares).collect()
    };
    std::iter::once(header).chain((0..buckets).map(row)).collect()
}

/// What the documents were, and how they were seen.
pub fn conditions(conditions: &Conditions) -> String {
    let Conditions { seq_len, generate_tokens, warmup_steps, steps, .. } = conditions;
    format!(
        "documents of {seq_len} tokens, of which the last {generate_tokens} are written; {warmup_steps} steps on other text, \
         then {} with the documents\n",
        steps - warmup_steps
    )
}

/// The table and how long it took.
pub fn text(runs: &[Learned]) -> String {
    let rows = rows(runs);
    let header: Vec<&str> = rows[0].iter().map(String::as_str).collect();
    let seconds = |run: &Learned| {
        format!(
            "{}: {:.1} s of training, last loss {:.4}, {:.1} s of writing\n",
            name(run),
            run.training_seconds,
            run.losses.last().copied().unwrap_or(f64::NAN),
            run.generation_seconds
        )
    };
    output::table(&header, &rows[1..]) + &runs.iter().map(seconds).collect::<String>()
}

/// All of it.
pub fn document(program: &StepProgram, conditions: &Conditions, data: &Value, runs: &[Learned]) -> Value {
    let bucket = |bucket: &Bucket| {
        json!({
            "epochs": bucket.epochs,
            "documents": bucket.documents,
            "exact": bucket.exact,
            "exact_share": bucket.exact_share(),
            "equal_share": bucket.equal_share,
        })
    };
    let run = |run: &Learned| {
        json!({
            "goldfish": run.goldfish.map(|goldfish| goldfish.to_string()),
            "buckets": run.buckets.iter().map(bucket).collect::<Vec<_>>(),
            "losses": run.losses,
            "training_s": run.training_seconds,
            "generation_s": run.generation_seconds,
            "ledger_equal": run.ledger_equal,
        })
    };
    json!({
        "model": program.model,
        "layout": layout_json(&program.layout),
        "data": data,
        "documents_per_bucket": conditions.documents_per_bucket,
        "epochs": conditions.epochs,
        "generate_tokens": conditions.generate_tokens,
        "warmup_steps": conditions.warmup_steps,
        "steps": conditions.steps,
        "seed": conditions.seed,
        "runs": runs.iter().map(run).collect::<Vec<_>>(),
    })
}

/// Of a run that learned all tokens, and of one that left some out.
const COLOURS: [&str; 2] = ["#c0392b", "#e67e22"];

/// For every bucket a bar for each run: the share of documents that were memorised.
pub fn shares(program: &StepProgram, runs: &[Learned]) -> Shares {
    let bar = |run: &Learned, bucket: &Bucket| Bar {
        share: bucket.exact_share(),
        title: format!(
            "{} epochs, {}: {} of {} documents; {} of the tokens are right",
            bucket.epochs,
            name(run),
            bucket.exact,
            bucket.documents,
            percent(bucket.equal_share)
        ),
    };
    let series = |run: &Learned| Series {
        name: name(run),
        colour: COLOURS[usize::from(run.goldfish.is_some())],
        bars: run.buckets.iter().map(|bucket| bar(run, bucket)).collect(),
    };
    let buckets = runs.iter().take(1).flat_map(|run| &run.buckets);
    Shares {
        title: format!("{}: documents memorised, by how often they were seen", program.model.name),
        across: "epochs",
        groups: buckets.map(|bucket| bucket.epochs.to_string()).collect(),
        series: runs.iter().map(series).collect(),
    }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{Layout, LayoutRequest, Model};

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

    fn program() -> StepProgram {
        let model = Model::gpt(1, 8, 2, 256, 8);
        let layout = Layout::new(&model, &LayoutRequest::new("x=1".parse().unwrap(), 2)).unwrap();
        StepProgram::new(&model, &layout).unwrap()
    }

    #[test]
    fn the_table_has_a_row_for_every_bucket() {
        let text = text(&runs());
        let expected =
            "epochs  documents  memorised, plain loss  right tokens  memorised, goldfish k=2,h=13  right tokens
0               4               0.0% (0)         50.0%                      0.0% (0)         50.0%
6               4              75.0% (3)         50.0%                     25.0% (1)         50.0%
plain loss: 3.0 s of training, last loss 1.5000, 0.2 s of writing
goldfish k=2,h=13: 3.0 s of training, last loss 1.5000, 0.2 s of writing
";
        assert_eq!(text, expected);
        assert_eq!(rows(&runs()[1..])[2], ["6", "4", "25.0% (1)", "50.0%"], "one run alone");
    }

    #[test]
    fn the_picture_tells_of_every_bucket_and_run() {
        let shares = shares(&program(), &runs());
        assert_eq!(shares.groups, ["0", "6"]);
        let bar = |run: usize, told: &str| {
            let Bar { share, title } = &shares.series[run].bars[1];
            assert!(title.starts_with(told), "{title}");
            *share
        };
        let both = [
            bar(0, "6 epochs, plain loss: 3 of 4 documents; 50.0%"),
            bar(1, "6 epochs, goldfish k=2,h=13: 1 of 4 documents; 50.0%"),
        ];
        assert_eq!(both, [0.75, 0.25]);
    }
}
