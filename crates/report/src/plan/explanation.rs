//! Why a layout is as fast as it is, for people and as a document.

use quadrille_plan::native::explain::{ROUNDING, Sensitivity, binding, difference};
use quadrille_plan::native::{Change, Explanation, Ranked, Setting, hardware};
use quadrille_run::layout_json;
use quadrille_run::units::{bytes, decimal, seconds};
use quadrille_spec::counted;
use serde_json::{Value, json};

use super::memory;
use crate::Text;
use crate::candidate::{notation, share};

/// How many numbers of the hardware and changes of the layout the text shows.
const SHOWN: usize = 6;
/// Parts and differences below this fraction of a step are not worth a line.
const NEGLIGIBLE: f64 = 0.001;

/// Why a layout is as fast as it is, for people.
pub fn explanation_text(explanation: &Explanation, setting: &Setting) -> Text {
    Told(explanation).text(setting)
}

/// The same as a document, with more of it.
pub fn explanation_document(explanation: &Explanation, setting: &Setting) -> Value {
    Told(explanation).document(setting)
}

struct Told<'a>(&'a Explanation);

impl Told<'_> {
    fn text(&self, setting: &Setting) -> Text {
        let part = |heading: &str, lines: String| Text::from("\n") + Text::heading(heading) + lines;
        part(&format!("what binds: {} a step", seconds(self.0.best.price.seconds)), self.binding(setting))
            + part("10% more of a number of the hardware, the layout left as it is", self.gains(setting))
            + part("one choice changed, everything else left as it is", self.other_choices())
            + self.lost()
    }

    fn binding(&self, setting: &Setting) -> String {
        let price = &self.0.best.price;
        let mut text = String::new();
        for (part, time) in binding(&price.parts) {
            if time > NEGLIGIBLE * price.seconds {
                text += &format!("  {} ({}): {}\n", seconds(time), share(time, price), part.words());
            }
        }
        let mut classes = memory(price);
        classes.sort_by_key(|(_, amount)| std::cmp::Reverse(*amount));
        let classes = classes.iter().filter(|(_, amount)| *amount > 0);
        let classes =
            classes.map(|(class, amount)| format!("{class} {}", bytes(*amount))).collect::<Vec<_>>().join(", ");
        let total = price.memory.total();
        let free = setting.capacity.map_or(String::new(), |capacity| {
            format!(", {:.1}% of what a layout may use", 100.0 * total as f64 / capacity as f64)
        });
        text + &format!("  {} of memory{free}: {classes}\n", bytes(total))
    }

    fn gains(&self, setting: &Setting) -> String {
        let before = self.0.best.price.seconds;
        let felt = |each: &&Sensitivity| each.gained_seconds.abs() > NEGLIGIBLE / 10.0 * before;
        let (felt, unfelt): (Vec<&Sensitivity>, Vec<&Sensitivity>) = self.0.sensitivities.iter().partition(felt);
        let (shown, more) = felt.split_at(SHOWN.min(felt.len()));
        let lines = shown.iter().map(|each| {
            let Sensitivity { field, from, to, gained_seconds: gained, origin } = each;
            let effect = if *gained < 0.0 { "costs" } else { "saves" };
            let percent = 100.0 * gained.abs() / before;
            let unit = hardware::unit(field);
            format!(
                "  {} {} instead of {} ({}): {effect} {} ({percent:.2}%)\n",
                hardware::title(setting.cluster, field),
                short(*to, unit),
                short(*from, unit),
                origin.name().replace('_', " "),
                seconds(gained.abs())
            )
        });
        let mut lines: String = lines.collect();
        if let Some(most) = more.iter().map(|each| each.gained_seconds.abs()).reduce(f64::max) {
            let percent = 100.0 * most / before;
            lines += &format!("  {}: at most {percent:.2}% each\n", counted(more.len(), "further number"));
        }
        match unfelt.len() {
            0 => lines,
            rest => lines + &format!("  {}: less than {:.2}% each\n", counted(rest, "other number"), 10.0 * NEGLIGIBLE),
        }
    }

    fn other_choices(&self) -> String {
        let before = self.0.best.price.seconds;
        let Some(changes) = &self.0.changes else {
            return "  not known: of pieces as equal as possible and groups as long as the pipeline only\n".to_owned();
        };
        let lines = changes.iter().take(SHOWN).map(|Change { what, candidate, seconds: changed, memory }| {
            let more = without_rounding(changed - before, before);
            let percent = 100.0 * more.abs() / before;
            let effect = match more {
                0.0 => "as fast".to_owned(),
                ..0.0 => format!("{} faster ({percent:.2}%)", seconds(-more)),
                _ => format!("{} slower ({percent:.2}%)", seconds(more)),
            };
            format!("  {}, {what}: {effect}, {} of memory\n", notation(candidate), bytes(memory.total()))
        });
        if changes.is_empty() { "  none that is legal and fits\n".to_owned() } else { lines.collect() }
    }

    fn lost(&self) -> Text {
        let Some(other) = &self.0.runner_up else { return Text::new() };
        let more = without_rounding(other.price.seconds - self.0.best.price.seconds, self.0.best.price.seconds);
        let name = notation(&other.candidate);
        let heading = if more < 0.0 {
            format!("why {name}, the fastest, is faster: {} less a step, in parts", seconds(-more))
        } else {
            format!("why {name}, the next one, lost: {} more a step, in parts", seconds(more))
        };
        let mut text = Text::from("\n") + Text::heading(&heading);
        let differing = difference(&self.0.best.price.parts, &other.price.parts);
        for (part, more) in differing.iter().take(SHOWN) {
            let sign = if *more < 0.0 { "-" } else { "+" };
            text += format!("  {sign}{}: {}\n", seconds(more.abs()), part.words());
        }
        if differing.is_empty() {
            let [first, second] = [&self.0.best, other].map(|ranked| bytes(ranked.price.memory.total()));
            text += format!("  in nothing: equal times; it needs {second} of memory, the first {first}\n");
        }
        text
    }

    fn document(&self, setting: &Setting) -> Value {
        let before = self.0.best.price.seconds;
        let candidate_json = |ranked: &Ranked| {
            let layout = setting.layout(&ranked.candidate).ok();
            layout.map(|layout| layout_json(&layout))
        };
        json!({
            "binding": binding(&self.0.best.price.parts).iter().map(|(part, time)| json!({
                "part": part.name(), "words": part.words(), "time_s": time, "share": time / before,
            })).collect::<Vec<_>>(),
            "sensitivities": self.0.sensitivities.iter().map(|each| json!({
                "field": each.field, "name": hardware::title(setting.cluster, &each.field),
                "unit": hardware::unit(&each.field), "from": each.from, "to": each.to, "gained_s": each.gained_seconds,
                "gained_share": each.gained_seconds / before, "origin": each.origin.name(),
            })).collect::<Vec<_>>(),
            "changes": self.0.changes.iter().flatten().map(|Change { what, candidate, seconds, memory }| json!({
                "notation": notation(candidate), "change": what, "time_s": seconds, "gained_s": before - seconds,
                "memory_bytes": memory.total(),
            })).collect::<Vec<_>>(),
            "runner_up": self.0.runner_up.as_ref().map(|other| json!({
                "notation": notation(&other.candidate),
                "layout": candidate_json(other),
                "time_s": other.price.seconds,
                "slower_by_s": difference(&self.0.best.price.parts, &other.price.parts).iter()
                    .map(|(part, more)| (part.name().to_owned(), json!(more))).collect::<serde_json::Map<_, _>>(),
            })),
        })
    }
}

/// A difference of a step's seconds, 0 where it is but rounding.
fn without_rounding(difference: f64, step: f64) -> f64 {
    if difference.abs() > ROUNDING * step { difference } else { 0.0 }
}

/// A number of the hardware in its unit.
fn short(value: f64, unit: &str) -> String {
    match value {
        value if unit == "s" => seconds(value),
        value if !unit.is_empty() => decimal(value, unit),
        value if value >= 1e4 => decimal(value, "").trim_end().to_owned(),
        value if value >= 0.01 => format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        value => format!("{value:.2e}"),
    }
}
