//! What a study says: a table, a document, a drawing.

use quadrille_step::StepProgram;
use serde_json::{Value, json};

use super::Conditions;
use super::study::{Bucket, Learned};
use crate::describe::layout_json;
use crate::drawing::{Anchor, Drawing};
use crate::output;

/// What a run is called.
fn name(run: &Learned) -> String {
    run.goldfish.map_or("plain loss".to_owned(), |goldfish| format!("goldfish {goldfish}"))
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
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

const FONT: f64 = 12.0;
/// Free space on the left, at the top, on the right (for the legend) and at the bottom.
const MARGINS: [f64; 4] = [60.0, 50.0, 200.0, 60.0];
const HEIGHT: f64 = 360.0;
/// Of a bar.
const WIDTH: f64 = 34.0;
const COLOURS: [&str; 2] = ["#c0392b", "#e67e22"];

/// The title of drawings and pages.
pub fn title(program: &StepProgram) -> String {
    format!("{}: documents memorised, by how often they were seen", program.model.name)
}

/// For every bucket a bar for each run: the share of documents that were memorised.
pub fn plot(program: &StepProgram, runs: &[Learned]) -> String {
    let [left, top, right, bottom] = MARGINS;
    let buckets = runs.first().map_or(0, |run| run.buckets.len());
    let group = WIDTH * (runs.len() as f64 + 1.0);
    let width = (left + group * buckets as f64 + right).max(560.0);
    let (floor, tall) = (HEIGHT - bottom, HEIGHT - top - bottom);
    let mut drawing = Drawing::new(width, HEIGHT);
    drawing.text(left, 22.0, Anchor::Start, 15.0, &title(program));
    for part in [0, 25, 50, 75, 100] {
        let y = floor - tall * f64::from(part) / 100.0;
        drawing.text(left - 8.0, y + 4.0, Anchor::End, FONT, &format!("{part}%"));
        drawing.line(&[(left, y, String::new()), (width - right, y, String::new())], "#dddddd", 1.0);
    }
    for (at, run) in runs.iter().enumerate() {
        for (place, bucket) in run.buckets.iter().enumerate() {
            let x = left + group * place as f64 + WIDTH * (at as f64 + 0.5);
            let high = tall * bucket.exact_share();
            let told = format!(
                "{} epochs, {}: {} of {} documents; {} of the tokens are right",
                bucket.epochs,
                name(run),
                bucket.exact,
                bucket.documents,
                percent(bucket.equal_share)
            );
            drawing.rectangle([x + 1.0, floor - high, WIDTH - 2.0, high], colour(run), &told);
            drawing.text(x + WIDTH / 2.0, floor - high - 4.0, Anchor::Middle, 10.0, &percent(bucket.exact_share()));
        }
    }
    for (place, bucket) in runs.iter().take(1).flat_map(|run| run.buckets.iter().enumerate()) {
        let middle = left + group * (place as f64 + 0.5);
        drawing.text(middle, floor + 18.0, Anchor::Middle, FONT, &bucket.epochs.to_string());
    }
    drawing.text(left, floor + 42.0, Anchor::Start, FONT, "epochs");
    let names: Vec<(&str, String)> = runs.iter().map(|run| (colour(run), name(run))).collect();
    drawing.legend(width - right + 16.0, top, FONT, names.iter().map(|(colour, name)| (*colour, name.as_str())));
    drawing.finish()
}

fn colour(run: &Learned) -> &'static str {
    COLOURS[usize::from(run.goldfish.is_some())]
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
    fn the_drawing_has_a_bar_for_every_bucket_and_run() {
        let svg = plot(&program(), &runs());
        for told in
            ["6 epochs, plain loss: 3 of 4 documents", "6 epochs, goldfish k=2,h=13: 1 of 4 documents", ">75.0%<"]
        {
            assert!(svg.contains(told), "{told} is not in {svg}");
        }
        // The ground, the legend, and the bars: three quarters of all is 187.5 high.
        assert_eq!((svg.matches("<rect").count(), svg.contains("height=\"187.5\"")), (1 + 2 + 4, true), "{svg}");
    }
}
