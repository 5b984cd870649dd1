//! Pages that can be opened without a network: drawings, paragraphs and tables.

use super::svg::escaped;

const STYLE: &str = "body{font-family:sans-serif;margin:2em}table{border-collapse:collapse;font-size:12px}\
                     td,th{border:1px solid #ccc;padding:3px 7px;text-align:right;white-space:nowrap}th{background:#f2f2f2}\
                     div{overflow-x:auto}";

/// A page of the title, which is plain text, the body (HTML: drawings, [`paragraph`]s) and below it a table, the header
/// first.
pub fn page(title: &str, body: &str, table: &[Vec<String>]) -> String {
    document(title, STYLE, &format!("{body}\n{}", self::table("", table)))
}

/// A page of the title, which is plain text, the style (CSS) and the body (HTML of the functions here).
pub fn document(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{}</title><style>{style}</style></head>\n\
         <body>\n{body}\n</body></html>\n",
        escaped(title)
    )
}

/// A table of plain text, the header first, that scrolls where it is wider than the page; `class` is for the style.
pub fn table(class: &str, rows: &[Vec<String>]) -> String {
    let row = |cells: &[String], tag: &str| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let head = rows.first().map_or_else(String::new, |header| row(header, "th"));
    let rows: String = rows.iter().skip(1).map(|cells| row(cells, "td")).collect();
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{}\"", escaped(class)) };
    format!("<div><table{class}>\n{head}{rows}</table></div>\n")
}

/// Plain text as a paragraph, line by line; nothing without a text.
pub fn paragraph(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!("<p>{}</p>\n", escaped(text.trim_end()).replace('\n', "<br>\n"))
}

/// Plain text as the heading of a part of a page; level 1 is the page's own.
pub fn heading(level: u8, text: &str) -> String {
    format!("<h{level}>{}</h{level}>\n", escaped(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_escape_what_they_are_told() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let page = page("a < b", &paragraph("c & d\ne\n"), &[row(["grid", "time"]), row(["<x>", "1"])]);
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"), "{page}");
        for part in ["<title>a &lt; b</title>", "<p>c &amp; d<br>\ne</p>", "<th>grid</th>", "<td>&lt;x&gt;</td>"] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert_eq!((page.matches("<tr>").count(), paragraph("")), (2, String::new()));
        assert_eq!(heading(2, "a & b"), "<h2>a &amp; b</h2>\n");
        assert!(table("wide", &[row(["a", "b"])]).contains("<table class=\"wide\">"));
    }
}
