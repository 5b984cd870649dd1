//! Speed-ups over the native collective as heat maps: rows are sizes, the largest on top, columns numbers of ranks, as in
//! figure 6.9 of the dissertation around AxoNN. A row of panels for every collective: one for each algorithm, and the best of
//! them where there are several.

use std::collections::BTreeMap;

use quadrille_measure::collectives::Measured;
use quadrille_run::units::bytes;
use quadrille_spec::{Algorithm, CollectiveKind};

use crate::drawing::{Anchor, Drawing};

const CELL: [f64; 2] = [64.0, 30.0];
/// Free space on the left of a panel (for the sizes), above and below it.
const LEFT: f64 = 80.0;
const ABOVE: f64 = 46.0;
const BELOW: f64 = 46.0;
/// Above all panels and below them, for the title and for what colours mean.
const HEAD: f64 = 34.0;
const FOOT: f64 = 56.0;
const FONT: f64 = 12.0;
/// Least width of a panel: its title takes that and the margin of the next.
const TITLE: f64 = 120.0;
/// What as much slower or faster as the scale knows looks like; equal times are white.
const SLOWER: [f64; 3] = [231.0, 111.0, 81.0];
const FASTER: [f64; 3] = [84.0, 155.0, 220.0];
/// The scale ends at the largest factor that was measured, between these.
const FACTORS: [f64; 2] = [2.0, 32.0];

/// The cells of a panel by size and number of ranks.
type Cells = BTreeMap<(u64, usize), Cell>;

struct Cell {
    speedup: f64,
    algorithm: Algorithm,
    seconds: f64,
}

struct Panel {
    title: String,
    cells: Cells,
}

/// The heat maps as SVG.
pub fn heatmap(measured: &[Measured]) -> String {
    let mut kinds: Vec<CollectiveKind> = measured.iter().map(|row| row.kind).collect();
    kinds.dedup();
    let rows: Vec<Vec<Panel>> = kinds.into_iter().map(|kind| panels(measured, kind)).collect();
    let factor = factor(rows.iter().flatten().flat_map(|panel| panel.cells.values()));
    let size = |panel: &Panel| {
        let (sizes, ranks) = panel.lines();
        [LEFT + (CELL[0] * ranks.len() as f64).max(TITLE), ABOVE + CELL[1] * sizes.len() as f64 + BELOW]
    };
    let width_of = |row: &Vec<Panel>| row.iter().map(|panel| size(panel)[0]).sum::<f64>();
    let height_of = |row: &Vec<Panel>| row.iter().map(|panel| size(panel)[1]).fold(0.0, f64::max);
    let width = rows.iter().map(width_of).fold(460.0, f64::max) + 20.0;
    let height = HEAD + rows.iter().map(height_of).sum::<f64>() + FOOT;
    let mut drawing = Drawing::new(width, height);
    drawing.text(LEFT, 22.0, Anchor::Start, 15.0, "Speed-up over the native collective");
    let mut y = HEAD;
    for row in &rows {
        let mut x = 0.0;
        for panel in row {
            panel.draw(&mut drawing, [x + LEFT, y + ABOVE], factor);
            x += size(panel)[0];
        }
        y += height_of(row);
    }
    if rows.iter().all(Vec::is_empty) {
        drawing.text(LEFT, y + 18.0, Anchor::Start, FONT, "no algorithm was measured beside the native one");
    } else {
        legend(&mut drawing, LEFT, y, factor);
    }
    drawing.finish()
}

/// A panel for every algorithm that was measured beside the native one, then the best of them.
fn panels(measured: &[Measured], kind: CollectiveKind) -> Vec<Panel> {
    let ours: Vec<&Measured> =
        measured.iter().filter(|row| row.kind == kind && row.algorithm != Algorithm::Native).collect();
    let mut panels = Vec::new();
    for algorithm in Algorithm::ALL {
        let cells = cells(ours.iter().copied().filter(|row| row.algorithm == algorithm));
        if !cells.is_empty() {
            panels.push(Panel { title: format!("{}, {algorithm}", kind.name()), cells });
        }
    }
    if panels.len() > 1 {
        panels.push(Panel { title: format!("{}, the best", kind.name()), cells: cells(ours.iter().copied()) });
    }
    panels
}

/// The fastest at every size that was asked for and number of ranks.
fn cells<'a>(rows: impl Iterator<Item = &'a Measured>) -> Cells {
    let mut cells = Cells::new();
    for row in rows {
        let cell = Cell { speedup: row.ratio_to_native, algorithm: row.algorithm, seconds: row.seconds };
        let best = cells.entry((row.size, row.ranks)).or_insert(Cell { ..cell });
        if cell.speedup > best.speedup {
            *best = cell;
        }
    }
    cells
}

impl Panel {
    /// The sizes, largest first, and the numbers of ranks.
    fn lines(&self) -> (Vec<u64>, Vec<usize>) {
        let mut sizes: Vec<u64> = self.cells.keys().rev().map(|(bytes, _)| *bytes).collect();
        sizes.dedup();
        let mut ranks: Vec<usize> = self.cells.keys().map(|(_, ranks)| *ranks).collect();
        ranks.sort_unstable();
        ranks.dedup();
        (sizes, ranks)
    }

    /// Its cells begin at `[x, y]`.
    fn draw(&self, drawing: &mut Drawing, [x, y]: [f64; 2], factor: f64) {
        let (sizes, ranks) = self.lines();
        let [width, height] = CELL;
        drawing.text(x, y - 12.0, Anchor::Start, 13.0, &self.title);
        for (row, size) in sizes.iter().enumerate() {
            let top = y + height * row as f64;
            drawing.text(x - 8.0, top + height / 2.0 + 4.0, Anchor::End, FONT, &bytes(*size));
            for (column, ranks) in ranks.iter().enumerate() {
                let Some(cell) = self.cells.get(&(*size, *ranks)) else { continue };
                let left = x + width * column as f64;
                let milliseconds = 1e3 * cell.seconds;
                let title = format!("{}: {milliseconds:.3} ms on {ranks} ranks, {}", cell.algorithm, bytes(*size));
                drawing.rectangle([left, top, width - 1.0, height - 1.0], &colour(cell.speedup, factor), &title);
                let middle = (left + width / 2.0, top + height / 2.0 + 4.0);
                drawing.text(middle.0, middle.1, Anchor::Middle, FONT, &number(cell.speedup));
            }
        }
        let floor = y + height * sizes.len() as f64;
        for (column, ranks) in ranks.iter().enumerate() {
            let middle = x + width * (column as f64 + 0.5);
            drawing.text(middle, floor + 16.0, Anchor::Middle, FONT, &ranks.to_string());
        }
        drawing.text(x, floor + 33.0, Anchor::Start, FONT, "ranks");
    }
}

/// What colours mean.
fn legend(drawing: &mut Drawing, x: f64, y: f64, factor: f64) {
    const STEPS: i32 = 9;
    const WIDTH: f64 = 40.0;
    for step in 0..STEPS {
        let speedup = factor.powf(f64::from(2 * step - (STEPS - 1)) / f64::from(STEPS - 1));
        let left = x + WIDTH * f64::from(step);
        drawing.rectangle([left, y + 8.0, WIDTH, 14.0], &colour(speedup, factor), "");
        if step % 2 == 0 {
            drawing.text(left + WIDTH / 2.0, y + 37.0, Anchor::Middle, FONT, &number(speedup));
        }
    }
}

/// The largest factor by which anything is faster or slower, within the bounds of the scale.
fn factor<'a>(cells: impl Iterator<Item = &'a Cell>) -> f64 {
    let factors = cells.map(|cell| cell.speedup.max(1.0 / cell.speedup));
    factors.fold(FACTORS[0], f64::max).min(FACTORS[1])
}

/// White where nothing changes; by the logarithm to the colours of much slower and much faster.
fn colour(speedup: f64, factor: f64) -> String {
    let place = (speedup.ln() / factor.ln()).clamp(-1.0, 1.0);
    let end = if place < 0.0 { SLOWER } else { FASTER };
    let [red, green, blue] = end.map(|part| (255.0 + (part - 255.0) * place.abs()).round() as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Two significant digits or more.
fn number(speedup: f64) -> String {
    match speedup {
        s if s < 0.095 => format!("{s:.3}"),
        s if s < 9.95 => format!("{s:.2}"),
        s => format!("{s:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a drawing shows of something measured.
    fn measured(kind: CollectiveKind, ranks: usize, part: usize, algorithm: Algorithm, ratio: f64) -> Measured {
        let bytes = (ranks * part * 4) as u64;
        Measured {
            kind,
            ranks,
            per_node: ranks,
            algorithm,
            bytes,
            size: bytes,
            runs: 1,
            seconds: 1e-3,
            spread: 0.0,
            algorithm_gb_s: 1.0,
            bus_gb_s: 1.0,
            ratio_to_native: ratio,
            copy_gb_s: 1.0,
            copy_total_gb_s: ranks as f64,
            ratio_to_copy: 1.0,
            predicted_seconds: None,
            predicted_error: None,
        }
    }

    fn sample() -> Vec<Measured> {
        let kind = CollectiveKind::AllGather;
        let mut rows = Vec::new();
        for (ranks, part) in [(2, 512), (2, 524_288), (4, 256), (4, 262_144)] {
            rows.push(measured(kind, ranks, part, Algorithm::Native, 1.0));
            rows.push(measured(kind, ranks, part, Algorithm::Ring, 0.25));
            rows.push(measured(kind, ranks, part, Algorithm::Recursive, if ranks == 4 { 2.0 } else { 0.5 }));
        }
        rows
    }

    #[test]
    fn a_panel_for_every_algorithm_and_one_for_the_best() {
        let svg = heatmap(&sample());
        for title in ["all-gather, ring", "all-gather, recursive", "all-gather, the best"] {
            assert_eq!(svg.matches(title).count(), 1, "{title}");
        }
        assert!(!svg.contains("all-gather, native"));
        // Three panels of two sizes and two numbers of ranks.
        assert_eq!(svg.matches("<title>").count(), 12);
        assert_eq!((svg.matches(">4.00 KiB<").count(), svg.matches(">4.00 MiB<").count()), (3, 3));
        // The best: recursive everywhere; the legend names 0.25, 0.50, 1.00, 2.00 and 4.00.
        assert_eq!(svg.matches(">2.00<").count(), 2 + 2 + 1);
        assert_eq!(svg.matches(">0.25<").count(), 4 + 1);
        assert!(svg.contains("<title>recursive: 1.000 ms on 4 ranks, 4.00 KiB</title>"), "{svg}");
        // Large messages are on top.
        assert!(svg.find(">4.00 MiB<").unwrap() < svg.find(">4.00 KiB<").unwrap());
    }

    #[test]
    fn colours_lie_on_a_logarithmic_scale_around_one() {
        assert_eq!([colour(1.0, 4.0), colour(4.0, 4.0), colour(0.25, 4.0)], ["#ffffff", "#549bdc", "#e76f51"]);
        assert_eq!((colour(100.0, 4.0), colour(0.01, 4.0)), (colour(4.0, 4.0), colour(0.25, 4.0)));
        // Half the way, both ways.
        assert_eq!((colour(2.0, 4.0), colour(0.5, 4.0)), ("#aacdee".to_owned(), "#f3b7a8".to_owned()));
    }

    #[test]
    fn the_scale_ends_at_the_largest_factor() {
        let of = |speedup| factor([Cell { speedup, algorithm: Algorithm::Ring, seconds: 1.0 }].iter());
        assert_eq!([of(1.0), of(8.0), of(0.125), of(100.0)], [2.0, 8.0, 8.0, 32.0]);
        assert_eq!(
            ["0.012", "0.50", "9.90", "12.0"],
            [0.012, 0.5, 9.9, 12.0].map(number).each_ref().map(String::as_str)
        );
    }

    #[test]
    fn without_others_the_drawing_says_so() {
        let only = [measured(CollectiveKind::AllReduce, 2, 512, Algorithm::Native, 1.0)];
        assert!(heatmap(&only).contains("no algorithm was measured beside"));
    }
}
