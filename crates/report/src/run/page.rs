//! The page: what the run is, its curves, its step, its events and checkpoints.

use quadrille_run::Event;
use quadrille_run::units::bytes;

use super::prediction::Prediction;
use super::read::{Run, Stored};
use super::{breakdown, curves, ledgers, loads};
use crate::drawing::{document, heading, paragraph, table};
use crate::ledger;
use crate::summary::summary;

/// Colours in the light and in the dark, and how tables and charts lie.
const STYLE: &str = include_str!("page.css");
/// Of more events the newest are listed.
const LISTED_EVENTS: usize = 500;

/// The whole page.
pub fn page(run: &Run, prediction: &Prediction) -> String {
    let title = format!("{}: {}", run.path.display(), run.program.model.name);
    let body = heading(1, &title)
        + &table("text", &about(run))
        + &notes(run)
        + &heading(2, "Curves")
        + &curves::curves(run)
        + &loads::loads(run)
        + &breakdown::breakdown(run, prediction)
        + &ledgers::ledgers(run)
        + &events(run)
        + &checkpoints(run);
    document(&title, STYLE, &format!("<main>\n{body}</main>"))
}

/// What the run is, as rows of names and texts.
fn about(run: &Run) -> Vec<Vec<String>> {
    let row = |name: &str, text: String| vec![name.to_owned(), text];
    let done = run.steps.last();
    let of = run.last.map_or(String::new(), |last| format!(" of {last}"));
    let mut rows = vec![
        row("run", run.path.display().to_string()),
        row("steps", format!("{}{of}", done.map_or(0, |step| step.step))),
    ];
    if let Some(step) = done {
        rows.push(row(
            "loss",
            format!("{:.4}, after {} {}", step.loss, step.tokens, run.program.model.sequence_unit()),
        ));
    }
    let validation = run.events.iter().rev().find(|event| event.kind == "validation");
    if let Some((event, loss)) = validation.and_then(|event| Some((event, event.loss?))) {
        rows.push(row("validation", format!("{loss:.4}, perplexity {:.3}, after step {}", loss.exp(), event.step)));
    }
    // A name and its text on each line.
    rows.extend(
        summary(&run.program)
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, text)| row(name, text.trim().into())),
    );
    if run.program.layout.optimizer_overlap {
        rows.push(row("updates", ledger::repeats(&run.steps)));
    }
    rows.push(row("threads", format!("{} for each rank", run.threads)));
    rows.push(row("command", command(&run.command)));
    rows
}

/// As a shell reads them, the command that began the run and those that went on with it: behind each `--resume` stands what
/// was said then, without the folder.
fn command(words: &[String]) -> String {
    let parts = words.split(|word| word == "--resume").enumerate();
    let lines = parts.map(|(part, words)| if part == 0 { line("", words) } else { line(" --resume FOLDER", words) });
    lines.collect::<Vec<_>>().join("; ")
}

fn line(resumed: &str, words: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_=,./:%+@".contains(letter))
    };
    let quoted = words.iter().map(|word| match plain(word) {
        true => format!(" {word}"),
        false => format!(" '{}'", word.replace('\'', r"'\''")),
    });
    format!("quadrille train{resumed}{}", quoted.collect::<String>())
}

/// What is unusual about the folder.
fn notes(run: &Run) -> String {
    let summary = run.summary.as_ref().err().map(|reason| paragraph(reason)).unwrap_or_default();
    let cut = run.cut.iter().map(|name| {
        paragraph(&format!(
            "The last line of {name} is cut off, and left out: it is being written, or the run was killed."
        ))
    });
    summary + &cut.collect::<String>()
}

fn events(run: &Run) -> String {
    let mut html = heading(2, "Events");
    if run.events.is_empty() {
        return html + &paragraph("none");
    }
    let earlier = run.events.len().saturating_sub(LISTED_EVENTS);
    if earlier > 0 {
        html += &paragraph(&format!("the newest {LISTED_EVENTS}; {earlier} earlier ones are in events.jsonl"));
    }
    let header = ["step", "what", "text"].map(str::to_owned).to_vec();
    let row = |event: &Event| vec![event.step.to_string(), event.kind.clone(), event.text.clone()];
    html + &table("text", &std::iter::once(header).chain(run.events[earlier..].iter().map(row)).collect::<Vec<_>>())
}

fn checkpoints(run: &Run) -> String {
    let header = ["checkpoint", "step", "size"].map(str::to_owned).to_vec();
    let row = |Stored { step, name, bytes: size }: &Stored| vec![name.clone(), step.to_string(), bytes(*size)];
    let listed = match run.checkpoints.as_slice() {
        [] => paragraph("none"),
        stored => table("", &std::iter::once(header).chain(stored.iter().map(row)).collect::<Vec<_>>()),
    };
    let unfinished = match run.unfinished {
        0 => String::new(),
        count => paragraph(&format!("{count} unfinished: being written, or left by a run that was killed")),
    };
    heading(2, "Checkpoints") + &listed + &unfinished
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_can_be_used_again() {
        let words = ["--grid", "x=2,data=2", "--data", "my book.txt", "it's", ""].map(str::to_owned);
        assert_eq!(command(&words), r"quadrille train --grid x=2,data=2 --data 'my book.txt' 'it'\''s' ''");
        let words = ["--grid", "x=2", "--resume", "--steps", "8", "--resume"].map(str::to_owned);
        let lines =
            "quadrille train --grid x=2; quadrille train --resume FOLDER --steps 8; quadrille train --resume FOLDER";
        assert_eq!(command(&words), lines);
    }
}
