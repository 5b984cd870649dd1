//! Drawings as SVG text.

use std::fmt::Write;

/// A drawing of a fixed size.
pub struct Drawing {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text is fixed.
#[derive(Debug, Clone, Copy)]
pub enum Anchor {
    /// At its beginning.
    Start,
    /// In its middle.
    Middle,
    /// At its end.
    End,
}

impl Drawing {
    /// On a white ground.
    pub fn new(width: f64, height: f64) -> Self {
        let mut drawing = Self::transparent(width, height);
        drawing.rectangle([0.0, 0.0, width, height], "white", "");
        drawing
    }

    /// On the ground of its page, whose style may name colours and say that of texts.
    pub fn transparent(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// A rectangle `[left, top, width, height]`; the title is shown under the pointer.
    pub fn rectangle(&mut self, [x, y, width, height]: [f64; 4], fill: &str, title: &str) {
        let at = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"");
        let title = if title.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(title)) };
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "<rect {at}>{title}</rect>");
    }

    /// A circle `[middle, middle, radius]` with a border; the title is shown under the pointer.
    pub fn circle(&mut self, [x, y, radius]: [f64; 3], fill: &str, border: &str, title: &str) {
        let at = format!("cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\" stroke=\"{border}\"");
        let _ = writeln!(self.body, "<circle {at}><title>{}</title></circle>", escaped(title));
    }

    /// What colours mean: squares with names, one below the other.
    pub fn legend<'a>(&mut self, x: f64, top: f64, size: f64, entries: impl IntoIterator<Item = (&'a str, &'a str)>) {
        for (line, (colour, name)) in entries.into_iter().enumerate() {
            let y = top + 20.0 * line as f64;
            self.rectangle([x, y, 13.0, 13.0], colour, "");
            self.text(x + 20.0, y + 11.0, Anchor::Start, size, name);
        }
    }

    /// A line of text at the place, of so many pixels.
    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, size: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let at = format!("x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\"");
        let _ = writeln!(self.body, "<text {at}>{}</text>", escaped(text));
    }

    /// A line through points; a small circle with a title on each point that has one.
    pub fn line(&mut self, points: &[(f64, f64, String)], stroke: &str, width: f64) {
        let path: Vec<_> = points.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect();
        let style = format!("fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\"");
        let _ = writeln!(self.body, "<polyline points=\"{}\" {style}/>", path.join(" "));
        for (x, y, title) in points.iter().filter(|(.., title)| !title.is_empty()) {
            self.circle([*x, *y, 3.5], stroke, "none", title);
        }
    }

    /// The whole drawing.
    pub fn finish(self) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\">\n{body}</svg>\n"
        )
    }
}

/// Text that is safe inside XML and HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings_are_whole_and_escape_what_they_are_told() {
        let mut drawing = Drawing::new(100.0, 50.0);
        drawing.text(1.0, 2.0, Anchor::End, 10.0, "a < \"b\" & c");
        drawing.legend(5.0, 5.0, 10.0, [("red", "x & y"), ("blue", "z")]);
        drawing.circle([1.0, 2.0, 3.0], "red", "black", "a & b");
        drawing.line(&[(0.0, 0.0, String::new()), (1.0, 1.0, "at > 1".to_owned())], "black", 1.0);
        let svg = drawing.finish();
        assert!(svg.starts_with("<svg xmlns") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("a &lt; &quot;b&quot; &amp; c") && svg.contains("<title>at &gt; 1</title>"), "{svg}");
        assert!(svg.contains(">x &amp; y</text>") && svg.contains("<title>a &amp; b</title>"), "{svg}");
        // The ground, and a square for each line of the legend.
        assert_eq!((svg.matches("<circle").count(), svg.matches("<rect").count()), (2, 3));
    }
}
