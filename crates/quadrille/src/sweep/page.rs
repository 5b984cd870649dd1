//! A sweep as one page: the plot and the table, without anything from elsewhere.

use super::Sweep;
use super::svg::escaped;

const STYLE: &str = "body{font-family:sans-serif;margin:2em}table{border-collapse:collapse;font-size:12px}\
                     td,th{border:1px solid #ccc;padding:3px 7px;text-align:right;white-space:nowrap}th{background:#f2f2f2}\
                     div{overflow-x:auto}";

impl Sweep<'_> {
    /// The page; `rows` with the header first.
    pub fn page(&self, rows: &[Vec<String>]) -> String {
        let title = escaped(&format!("{} on {}", self.case.model.name, self.case.cluster.name));
        let row = |cells: &[String], tag: &str| {
            let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let head = rows.first().map_or_else(String::new, |header| row(header, "th"));
        let body: String = rows.iter().skip(1).map(|cells| row(cells, "td")).collect();
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style>\
             </head>\n<body>\n{}\n<div><table>\n{head}{body}</table></div>\n</body></html>\n",
            self.plot()
        )
    }
}
