//! A lesson as text: lines of at most as many columns as there are.

use quadrille_run::units::bytes;

use super::{Lesson, Move, tiles};
use crate::Text;
use quadrille_step::wrap::{columns, wrapped};

/// Names of the memory that are told.
const NAMES: usize = 8;

impl Lesson {
    /// The mesh, seen from the rank.
    pub fn mesh_text(&self, width: usize) -> Text {
        Text::from("\n") + self.mesh.text(width)
    }

    /// The layer's matrices on the rank, and its collectives with their reasons.
    pub fn layer_text(&self, width: usize) -> Text {
        let place: Vec<String> =
            self.mesh.axes.iter().map(|axis| format!("{}={}", axis.axis, axis.coordinate)).collect();
        let place = if place.is_empty() { String::new() } else { format!(" ({})", place.join(" ")) };
        let mut text = Text::from("\n") + Text::heading(&format!("{} on rank {}{place}", self.layer, self.rank));
        if !self.tiles.is_empty() {
            text += tiles::text(&self.tiles, width);
        }
        let all: Vec<&Move> = self.of_layer(&self.layer).collect();
        if all.is_empty() {
            return text + "no communication\n";
        }
        text + stories(&self.layer, &all, width)
    }

    /// The collectives of [`Lesson::others`], with their reasons: those of layers that move all the same once.
    pub fn others_text(&self, width: usize) -> Text {
        let mut text = Text::new();
        text.extend(self.others.iter().map(|same| {
            let name =
                if same.len() == 1 { same[0].clone() } else { format!("{} and {} more", same[0], same.len() - 1) };
            stories(&name, &self.of_layer(&same[0]).collect::<Vec<_>>(), width)
        }));
        text
    }

    /// What the rank holds over the step.
    pub fn memory_text(&self, width: usize) -> Text {
        Text::from("\n") + self.memory.text(NAMES, width)
    }
}

/// What layers move in each pass, and why.
fn stories(layers: &str, moves: &[&Move], width: usize) -> Text {
    let mut passes: Vec<&str> = Vec::new();
    for told in moves {
        if !passes.contains(&told.pass.as_str()) {
            passes.push(&told.pass);
        }
    }
    let mut text = Text::new();
    for pass in passes {
        text += "\n";
        text += Text::heading(&format!("{layers} · {pass}: what is sent in a step, and why"));
        let of_pass: Vec<&Move> = moves.iter().copied().filter(|told| told.pass == pass).collect();
        for same in alike(&of_pass) {
            text += told(&same, width);
        }
    }
    text
}

/// Moves that are told together: of one kind over the same ranks in a pass, for one reason.
fn alike<'a>(moves: &[&'a Move]) -> Vec<Vec<&'a Move>> {
    let mut all: Vec<Vec<&Move>> = Vec::new();
    let key = |told: &Move| (told.pass.clone(), told.kind, told.key.clone(), told.reason.clone());
    for told in moves {
        match all.iter_mut().find(|same| key(same[0]) == key(told)) {
            Some(same) => same.push(told),
            None => all.push(vec![told]),
        }
    }
    all
}

/// What, over which axes, of which values, how often and how much, what hides it; then why.
fn told(same: &[&Move], width: usize) -> String {
    let first = same[0];
    let mut names: Vec<&str> = Vec::new();
    for told in same {
        if !names.contains(&told.value.as_str()) {
            names.push(&told.value);
        }
    }
    let names = match names.as_slice() {
        [one, two, three, _, ..] => format!("{one}, {two}, {three} and {} more", names.len() - 3),
        names => names.join(", "),
    };
    let sum = |of: fn(&Move) -> u64| same.iter().map(|told| of(told)).sum::<u64>();
    let [calls, payload, wire] = [sum(|told| told.calls), sum(|told| told.payload_bytes), sum(|told| told.wire_bytes)];
    let mut hidden = first.hidden.clone();
    same[1..].iter().for_each(|told| hidden.add(&told.hidden));
    let what = format!("  {} {}: {names}", first.kind.name(), first.axes);
    let calls = if calls == 1 { "once".to_owned() } else { format!("{calls} times") };
    let counts = format!("{calls}, {}, sends {}", bytes(payload), bytes(wire));
    let lines = if columns(&what) + 2 + columns(&counts) <= width {
        format!("{what}{counts:>room$}\n", room = width - columns(&what))
    } else {
        wrapped(&format!("{what}\n    {counts}\n"), width)
    };
    lines + &wrapped(&format!("    {} ({})\n", first.reason, hidden.told()), width)
}
