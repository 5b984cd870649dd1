//! What was found, for people.

use quadrille_plan::native::explain::{Part, ROUNDING};
use quadrille_plan::native::{Ranked, Setting};
use quadrille_report::candidate::{others, recompute, schedule, share, sizes};
use quadrille_run::units::seconds;

use super::Answer;
use super::case::Case;

use super::describe::{Derived, memory, peak};
use crate::failure::Failure;
use crate::output::{bytes, decimal, table};

impl Answer<'_> {
    pub fn text(&self) -> Result<String, Failure> {
        let mut text = headline(self.case, &self.search.setting)? + &self.looked_at() + "\n";
        if self.search.front {
            let shown = self.shown_front();
            text += &format!("front over devices, time and memory: {} of {} layouts\n", shown.len(), self.front.len());
            text += &ranking(self.case, &self.search.setting, &shown);
        }
        if !self.found.ranked.is_empty() {
            let ranked: Vec<_> = self.found.ranked.iter().collect();
            let of = if self.search.one_per_grid { ", one of each grid" } else { "" };
            text += &if self.search.front {
                format!("\nfastest on {} devices{of}\n", self.case.gpus)
            } else {
                String::new()
            };
            text += &ranking(self.case, &self.search.setting, &ranked);
            text += "\nparts of a step\n";
            text += &parts_table(&ranked);
            text += "\nmemory of the rank that needs most\n";
            text += &memory_table(&self.search.setting, &ranked);
        }
        if let Some(explanation) = &self.explanation {
            text += &explanation.text(&self.search.setting);
            text += &self.refused();
        }
        Ok(text)
    }

    /// At most `--top` layouts of every number of devices, the fastest.
    fn shown_front(&self) -> Vec<&Ranked> {
        let of_devices = |ranked: &&Ranked| ranked.candidate.devices();
        let mut shown: Vec<&Ranked> = Vec::new();
        for ranked in &self.front {
            let devices = ranked.candidate.devices();
            if shown.iter().filter(|other| of_devices(other) == devices).count() < self.search.top {
                shown.push(ranked);
            }
        }
        shown
    }

    /// Counts, on one line, and a warning if not everything was looked at.
    fn looked_at(&self) -> String {
        let counts = &self.found.counts;
        let count = |number: u64| match number {
            0..100_000 => number.to_string(),
            _ => decimal(number as f64, "").trim_end().to_owned(),
        };
        let mut text = format!(
            "{} of {} grids and {} of {} configurations are legal: {} priced, {} of them fit; {} too large and {} too slow by \
             bounds ({} of searching)\n",
            counts.legal_grids,
            counts.grids,
            count(counts.legal),
            count(counts.enumerated),
            count(counts.priced),
            count(counts.fitting),
            count(counts.too_large),
            count(counts.too_slow),
            seconds(self.seconds),
        );
        if self.found.stopped {
            text += "stopped by --time-limit before everything was looked at: the best so far, which may differ from run to \
                     run\n";
            if self.search.front {
                let numbers: Vec<_> = self.incomplete.iter().map(ToString::to_string).collect();
                text += &format!("numbers of GPUs that were not searched completely: {}\n", numbers.join(", "));
            }
        }
        text
    }

    /// What each rule refused.
    fn refused(&self) -> String {
        let refusals = self.refusals();
        if refusals.is_empty() {
            return "\nno grid or configuration broke a rule\n".to_owned();
        }
        let lines = refusals.iter().map(|refusal| {
            let amounts = [(refusal.grids, "grid"), (refusal.configurations, "configuration")];
            let named =
                |(amount, what): &(u64, &str)| format!("{amount} {what}{}", if *amount == 1 { "" } else { "s" });
            let amounts = amounts.iter().filter(|(amount, _)| *amount > 0).map(named);
            let amounts = amounts.collect::<Vec<_>>().join(" and ");
            format!("  {}: {amounts}, e.g. {}\n", refusal.rule, refusal.example)
        });
        format!("\nrefused, by rule\n{}", lines.collect::<String>())
    }
}

/// What is trained where, and what MFU and HFU are.
pub fn headline(case: &Case, setting: &Setting) -> Result<String, Failure> {
    let device = case.cluster.device.as_ref().map_or("devices", |device| device.name.as_str());
    let reserved = match case.reserved()? {
        0 => String::new(),
        reserved => format!(", {} of each kept free", bytes(reserved)),
    };
    Ok(format!(
        "{} ({} parameters) on {} {device} of {}, {} sequences of {} tokens a step, by {}{reserved}\n",
        case.model.name,
        decimal(case.model.parameters() as f64, "").trim_end(),
        case.gpus,
        case.cluster.name,
        case.global_batch,
        case.seq_len,
        setting.framework.name,
    ) + &utilisation(setting))
}

/// Layouts with what follows from their prices.
pub fn ranking(case: &Case, setting: &Setting, layouts: &[&Ranked]) -> String {
    let several = layouts.iter().any(|ranked| ranked.candidate.devices() != case.gpus);
    let mut header = vec!["step"];
    header.extend(several.then_some("devices"));
    header.extend([
        "grid",
        "in a node",
        "microbatch",
        "schedule",
        "recompute",
        "also",
        "tokens/s",
        "MFU",
        "HFU",
        "memory",
    ]);
    header.extend(case.tokens.map(|_| ["days", "device-hours"]).into_iter().flatten());
    header.extend(case.tokens.and(case.price_per_hour).map(|_| "cost"));
    let row = |ranked: &&Ranked| {
        let Ranked { candidate, price } = ranked;
        let derived = Derived::new(case, setting, ranked);
        let mut row = vec![seconds(price.seconds)];
        row.extend(several.then(|| candidate.devices().to_string()));
        row.extend([
            sizes(candidate.sizes),
            sizes(candidate.inside),
            candidate.microbatch.to_string(),
            schedule(candidate),
            recompute(candidate),
            others(candidate),
            decimal(derived.tokens_per_second, "").trim_end().to_owned(),
            format!("{:.1}%", 100.0 * derived.mfu),
            format!("{:.1}%", 100.0 * derived.hfu),
            bytes(price.memory.total()),
        ]);
        row.extend(derived.days.map(|days| format!("{days:.2}")));
        row.extend(derived.device_hours.map(|hours| decimal(hours, "").trim_end().to_owned()));
        row.extend(derived.cost.map(|cost| decimal(cost, "").trim_end().to_owned()));
        row
    };
    table(&header, &layouts.iter().map(row).collect::<Vec<_>>())
}

/// Memory by class.
pub fn memory_table(setting: &Setting, layouts: &[&Ranked]) -> String {
    let classes = layouts.first().map(|ranked| memory(&ranked.price).map(|(class, _)| class));
    let header: Vec<_> = ["total", "free", "stage"].into_iter().chain(classes.into_iter().flatten()).collect();
    let row = |ranked: &&Ranked| {
        let total = ranked.price.memory.total();
        let free = setting.capacity.map_or("-".to_owned(), |capacity| bytes(capacity.saturating_sub(total)));
        let classes = memory(&ranked.price).map(|(_, amount)| bytes(amount));
        [bytes(total), free, ranked.price.memory.stage.to_string()].into_iter().chain(classes).collect()
    };
    table(&header, &layouts.iter().map(row).collect::<Vec<_>>())
}

/// What MFU and HFU are.
fn utilisation(setting: &Setting) -> String {
    let Some((peak, kind)) = peak(setting) else { return String::new() };
    format!(
        "MFU: FLOPs of products and attention, forward and backward, nothing twice and no causal discount, over step x \
         devices x {} ({kind} peak); HFU: all that are executed, over the same\n",
        decimal(peak, "FLOP/s")
    )
}

/// The parts of each step in percent, without those that no layout has.
pub fn parts_table(layouts: &[&Ranked]) -> String {
    // What rounding leaves of a bubble is none.
    let present =
        |part: &Part| layouts.iter().any(|ranked| part.of(&ranked.price.parts) > ROUNDING * ranked.price.seconds);
    let parts: Vec<Part> = Part::ALL.into_iter().filter(present).collect();
    let header: Vec<_> = std::iter::once("step").chain(parts.iter().map(|part| part.name())).collect();
    let row = |ranked: &&Ranked| {
        let price = &ranked.price;
        let shares = parts.iter().map(|part| share(part.of(&price.parts), price));
        std::iter::once(seconds(price.seconds)).chain(shares).collect()
    };
    table(&header, &layouts.iter().map(row).collect::<Vec<_>>())
}
