//! Reasons for the time of a layout, and other choices.

use quadrille_plan::native::explain::{Part, ROUNDING, Sensitivity, binding, difference};
use quadrille_plan::native::{Change, Explanation, Ranked, Setting, hardware};
use quadrille_run::shown_layout;
use quadrille_run::units::{bytes, decimal, seconds};
use quadrille_spec::{LayoutFile, Origin, counted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PricedLayout;
use crate::Text;
use crate::by_name::ByName;
use crate::candidate::notation;

/// How many numbers of the hardware and changes of the layout the text shows.
const SHOWN: usize = 6;
/// Parts and differences below this fraction of a step are not worth a line.
const NEGLIGIBLE: f64 = 0.001;

/// Reasons for the time of a layout, and what would change it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PriceExplanation {
    /// Parts of the step that take time, largest first.
    pub binding: Vec<BindingPart>,
    /// Effect of a tenth more of each number of the hardware, largest first.
    pub sensitivities: Vec<HardwareGain>,
    /// Effect of each changed choice, fastest first.
    pub changes: Vec<ChoiceGain>,
    /// Another layout of the same search: the next best, or the fastest where a simpler one is recommended; null where there is
    /// none.
    pub runner_up: Option<RunnerUp>,
    /// True if changes were tried: a layout with other pieces or groups than a search tries has none. No part of documents.
    #[serde(skip)]
    pub has_changes: bool,
}

/// A part of a step that takes time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BindingPart {
    /// Name of the part.
    pub part: String,
    /// The part in words.
    pub words: String,
    /// Its seconds.
    pub time_s: f64,
    /// Its part of the step, from 0 to 1.
    pub share: f64,
}

/// Effect of a larger number of the hardware.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HardwareGain {
    /// Name of the number in files of clusters.
    pub field: String,
    /// Name of the number for people.
    pub name: String,
    /// Unit of the number; empty where it has none.
    pub unit: String,
    /// Value of the cluster.
    pub from: f64,
    /// Larger value.
    pub to: f64,
    /// Seconds of a step that it saves; negative where it costs some.
    pub gained_s: f64,
    /// Part of the step that it saves.
    pub gained_share: f64,
    /// Origin of the value of the cluster.
    pub origin: Origin,
}

/// Effect of a changed choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChoiceGain {
    /// The changed layout in the usual notation.
    pub notation: String,
    /// The change in words.
    pub change: String,
    /// Seconds of its step.
    pub time_s: f64,
    /// Seconds of a step that it saves; negative where it costs some.
    pub gained_s: f64,
    /// Bytes of the rank that needs most.
    pub memory_bytes: u64,
}

/// Another layout of the same search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunnerUp {
    /// The layout in the usual notation.
    pub notation: String,
    /// Fields of a layout file.
    pub layout: Option<LayoutFile>,
    /// Seconds of its step.
    pub time_s: f64,
    /// Seconds that it takes more, by part of the step, largest difference first.
    pub slower_by_s: ByName<f64>,
    /// Bytes of its rank that needs most; no part of documents.
    #[serde(skip)]
    pub memory_bytes: u64,
}

impl PriceExplanation {
    /// Explanation of a layout that was priced in a setting.
    pub fn new(explanation: &Explanation, setting: &Setting) -> Self {
        let best = &explanation.best;
        let before = best.price.seconds;
        let binding = binding(&best.price.parts).into_iter().map(|(part, time_s)| BindingPart {
            part: part.name().to_owned(),
            words: part.words(),
            time_s,
            share: time_s / before,
        });
        let changes = explanation.changes.iter().flatten().map(|change| ChoiceGain::new(change, before));
        let sensitivities = explanation.sensitivities.iter().map(|each| HardwareGain::new(each, setting, before));
        let runner_up = explanation.runner_up.as_ref();
        Self {
            binding: binding.collect(),
            sensitivities: sensitivities.collect(),
            changes: changes.collect(),
            runner_up: runner_up.map(|other| RunnerUp::new(other, best, setting)),
            has_changes: explanation.changes.is_some(),
        }
    }

    /// Lines for people; `plan` is the layout that is explained, of devices of which it may use so many bytes.
    pub fn text(&self, plan: &PricedLayout, capacity: Option<u64>) -> Text {
        let part = |heading: &str, lines: String| Text::from("\n") + Text::heading(heading) + lines;
        part(&format!("what binds: {} a step", seconds(plan.time_s)), self.binding_text(plan, capacity))
            + part("10% more of a number of the hardware, the layout left as it is", self.gains_text(plan.time_s))
            + part("one choice changed, everything else left as it is", self.changes_text(plan.time_s))
            + self.runner_up.as_ref().map_or_else(Text::new, |other| other.text(plan))
    }

    fn binding_text(&self, plan: &PricedLayout, capacity: Option<u64>) -> String {
        let shown = self.binding.iter().filter(|part| part.time_s > NEGLIGIBLE * plan.time_s);
        let line =
            |part: &BindingPart| format!("  {} ({}): {}\n", seconds(part.time_s), plan.share(part.time_s), part.words);
        let text: String = shown.map(line).collect();
        let mut classes = plan.memory.by_class();
        classes.sort_by_key(|(_, amount)| std::cmp::Reverse(*amount));
        let classes = classes.iter().filter(|(_, amount)| *amount > 0);
        let classes =
            classes.map(|(class, amount)| format!("{class} {}", bytes(*amount))).collect::<Vec<_>>().join(", ");
        let total = plan.memory_bytes;
        let free = capacity.map_or(String::new(), |capacity| {
            format!(", {:.1}% of what a layout may use", 100.0 * total as f64 / capacity as f64)
        });
        text + &format!("  {} of memory{free}: {classes}\n", bytes(total))
    }

    fn gains_text(&self, before: f64) -> String {
        let felt = |each: &&HardwareGain| each.gained_s.abs() > NEGLIGIBLE / 10.0 * before;
        let (felt, unfelt): (Vec<&HardwareGain>, Vec<&HardwareGain>) = self.sensitivities.iter().partition(felt);
        let (shown, more) = felt.split_at(SHOWN.min(felt.len()));
        let mut lines: String = shown.iter().map(|each| each.text(before)).collect();
        if let Some(most) = more.iter().map(|each| each.gained_s.abs()).reduce(f64::max) {
            let percent = 100.0 * most / before;
            lines += &format!("  {}: at most {percent:.2}% each\n", counted(more.len(), "further number"));
        }
        match unfelt.len() {
            0 => lines,
            rest => lines + &format!("  {}: less than {:.2}% each\n", counted(rest, "other number"), 10.0 * NEGLIGIBLE),
        }
    }

    fn changes_text(&self, before: f64) -> String {
        if !self.has_changes {
            return "  not known: of pieces as equal as possible and groups as long as the pipeline only\n".to_owned();
        }
        if self.changes.is_empty() {
            return "  none that is legal and fits\n".to_owned();
        }
        self.changes.iter().take(SHOWN).map(|change| change.text(before)).collect()
    }
}

impl HardwareGain {
    fn new(sensitivity: &Sensitivity, setting: &Setting, before: f64) -> Self {
        let Sensitivity { field, from, to, gained_seconds, origin } = sensitivity;
        Self {
            field: field.clone(),
            name: hardware::title(setting.cluster, field),
            unit: hardware::unit(field).to_owned(),
            from: *from,
            to: *to,
            gained_s: *gained_seconds,
            gained_share: gained_seconds / before,
            origin: *origin,
        }
    }

    fn text(&self, before: f64) -> String {
        let effect = if self.gained_s < 0.0 { "costs" } else { "saves" };
        let gained = self.gained_s.abs();
        format!(
            "  {} {} instead of {} ({}): {effect} {} ({:.2}%)\n",
            self.name,
            short(self.to, &self.unit),
            short(self.from, &self.unit),
            self.origin.name().replace('_', " "),
            seconds(gained),
            100.0 * gained / before,
        )
    }
}

impl ChoiceGain {
    fn new(change: &Change, before: f64) -> Self {
        Self {
            notation: notation(&change.candidate),
            change: change.what.clone(),
            time_s: change.seconds,
            gained_s: before - change.seconds,
            memory_bytes: change.memory.total(),
        }
    }

    fn text(&self, before: f64) -> String {
        let more = without_rounding(self.time_s - before, before);
        let percent = 100.0 * more.abs() / before;
        let effect = match more {
            0.0 => "as fast".to_owned(),
            ..0.0 => format!("{} faster ({percent:.2}%)", seconds(-more)),
            _ => format!("{} slower ({percent:.2}%)", seconds(more)),
        };
        format!("  {}, {}: {effect}, {} of memory\n", self.notation, self.change, bytes(self.memory_bytes))
    }
}

impl RunnerUp {
    fn new(other: &Ranked, best: &Ranked, setting: &Setting) -> Self {
        let layout = setting.layout(&other.candidate).ok();
        let slower = difference(&best.price.parts, &other.price.parts);
        Self {
            notation: notation(&other.candidate),
            layout: layout.map(|layout| shown_layout(&layout)),
            time_s: other.price.seconds,
            slower_by_s: slower.into_iter().map(|(part, more)| (part.name(), more)).collect(),
            memory_bytes: other.price.memory.total(),
        }
    }

    fn text(&self, best: &PricedLayout) -> Text {
        let more = without_rounding(self.time_s - best.time_s, best.time_s);
        let name = &self.notation;
        let heading = if more < 0.0 {
            format!("why {name}, the fastest, is faster: {} less a step, in parts", seconds(-more))
        } else {
            format!("why {name}, the next one, lost: {} more a step, in parts", seconds(more))
        };
        let mut text = Text::from("\n") + Text::heading(&heading);
        let differing = &self.slower_by_s.0;
        for (name, more) in differing.iter().take(SHOWN) {
            let sign = if *more < 0.0 { "-" } else { "+" };
            let part = Part::ALL.into_iter().find(|part| part.name() == name);
            text += format!("  {sign}{}: {}\n", seconds(more.abs()), part.map_or(name.clone(), Part::words));
        }
        if differing.is_empty() {
            let [first, second] = [best.memory_bytes, self.memory_bytes].map(bytes);
            text += format!("  in nothing: equal times; it needs {second} of memory, the first {first}\n");
        }
        text
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
