//! Shares of a whole as bars, in groups.

use quadrille_run::units::percent;

use crate::drawing::{self, Anchor, Drawing};

const FONT: f64 = 12.0;
/// Free space on the left, at the top, on the right (for the legend) and at the bottom.
const MARGINS: [f64; 4] = [60.0, 50.0, 200.0, 60.0];
const HEIGHT: f64 = 360.0;
const FLOOR: f64 = HEIGHT - MARGINS[3];
/// Of a bar.
const WIDTH: f64 = 34.0;

/// Bars of several series beside each other, group by group.
pub struct Shares {
    /// What is shown.
    pub title: String,
    /// What groups differ in.
    pub across: &'static str,
    /// The name of each group.
    pub groups: Vec<String>,
    /// The bars, of each series one in every group.
    pub series: Vec<Series>,
}

/// Bars of one colour.
pub struct Series {
    /// In the legend.
    pub name: String,
    /// A colour of CSS.
    pub colour: &'static str,
    /// One for each group.
    pub bars: Vec<Bar>,
}

/// A bar.
pub struct Bar {
    /// Its height, from 0 to 1.
    pub share: f64,
    /// What is shown under the pointer.
    pub title: String,
}

impl Shares {
    /// The picture as SVG.
    pub fn plot(&self) -> String {
        let [left, top, right, bottom] = MARGINS;
        let group = WIDTH * (self.series.len() as f64 + 1.0);
        let width = (left + group * self.groups.len() as f64 + right).max(560.0);
        let tall = HEIGHT - top - bottom;
        let mut drawing = Drawing::new(width, HEIGHT);
        drawing.text(left, 22.0, Anchor::Start, 15.0, &self.title);
        for part in [0, 25, 50, 75, 100] {
            let y = FLOOR - tall * f64::from(part) / 100.0;
            drawing.text(left - 8.0, y + 4.0, Anchor::End, FONT, &format!("{part}%"));
            drawing.line(&[(left, y, String::new()), (width - right, y, String::new())], "#dddddd", 1.0);
        }
        for (at, series) in self.series.iter().enumerate() {
            for (place, Bar { share, title }) in series.bars.iter().enumerate() {
                let x = left + group * place as f64 + WIDTH * (at as f64 + 0.5);
                let high = tall * share;
                drawing.rectangle([x + 1.0, FLOOR - high, WIDTH - 2.0, high], series.colour, title);
                drawing.text(x + WIDTH / 2.0, FLOOR - high - 4.0, Anchor::Middle, 10.0, &percent(*share));
            }
        }
        for (place, name) in self.groups.iter().enumerate() {
            drawing.text(left + group * (place as f64 + 0.5), FLOOR + 18.0, Anchor::Middle, FONT, name);
        }
        drawing.text(left, FLOOR + 42.0, Anchor::Start, FONT, self.across);
        let names = self.series.iter().map(|series| (series.colour, series.name.as_str()));
        drawing.legend(width - right + 16.0, top, FONT, names);
        drawing.finish()
    }

    /// The picture as a page, with a note and a table below it, the header first.
    pub fn page(&self, note: &str, table: &[Vec<String>]) -> String {
        drawing::page(&self.title, &(self.plot() + &drawing::paragraph(note)), table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_bar_in_every_group_for_every_series() {
        let series = |name: &str, colour, shares: [f64; 2]| {
            let bar = |share| Bar { share, title: format!("{name} has {share}") };
            Series { name: name.to_owned(), colour, bars: shares.map(bar).into() }
        };
        let shares = Shares {
            title: "shares".to_owned(),
            across: "epochs",
            groups: vec!["0".to_owned(), "6".to_owned()],
            series: vec![series("plain", "red", [0.0, 0.75]), series("goldfish", "blue", [0.0, 0.25])],
        };
        let svg = shares.plot();
        for told in ["plain has 0.75", "goldfish has 0.25", ">75.0%<", ">epochs<", ">6<"] {
            assert!(svg.contains(told), "{told} is not in {svg}");
        }
        // The ground, the legend, and the bars: three quarters of all is 187.5 high.
        assert_eq!((svg.matches("<rect").count(), svg.contains("height=\"187.5\"")), (1 + 2 + 4, true), "{svg}");
        assert!(shares.page("a note", &[vec!["epochs".to_owned()]]).contains("<p>a note</p>"));
    }
}
