//! Pages that open without a network, from a file or from a server: one document of what was found, and what draws it.
//!
//! A page is its document as JSON with the styles, the components (tables that sort and filter, charts) and the script of its
//! kind beside it. It loads nothing, and its policy forbids that it does. Charts are those of Observable Plot, of which
//! `assets/README.md` says the version.

use serde_json::Value;

const STYLE: &str = include_str!("../assets/style.css");
const PLOT: &str = include_str!("../assets/plot.js");
const PARTS: &str = include_str!("../assets/parts.js");
const PLAN: &str = include_str!("../assets/plan.js");
const PLANNER: &str = include_str!("../assets/planner.js");

/// What a page may do: its own scripts and styles, no request.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
     form-action 'none'";

/// Draws the page's document once.
const STILL: &str =
    "document.getElementById(\"page\").append(...drawPlan(JSON.parse(document.getElementById(\"data\").textContent)));";

/// The page of a plan: the document that `plan` prints as JSON.
///
/// ```
/// let page = quadrille_pages::plan_page(&serde_json::json!({ "model": "</script>" }));
/// assert!(page.starts_with("<!DOCTYPE html>") && !page.contains("\"</script>"));
/// ```
pub fn plan_page(document: &Value) -> String {
    let name = |field: &str| document[field].as_str().unwrap_or_default();
    let title = format!("{} on {} {}: plan", name("model"), document["gpus"], name("cluster"));
    page(&title, document, POLICY, &[PLAN, STILL])
}

/// The page that asks its server for plans, by `POST plan`, and draws the answers: `choices` are the names of `models`,
/// `clusters`, `frameworks` and `products` that it offers.
pub fn planner_page(choices: &Value) -> String {
    page("Quadrille: planner", choices, &format!("{POLICY}; connect-src 'self'"), &[PLAN, PLANNER])
}

/// A page of a plain title that `scripts` draw from the document, within a policy.
fn page(title: &str, document: &Value, policy: &str, scripts: &[&str]) -> String {
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let scripts = scripts.join("\n");
    // Within a script only a `<` can end it or begin a comment.
    let data = document.to_string().replace('<', "\\u003c");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style></head>\n<body><main id=\"page\"></main>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n\
         <script>\n{PLOT}</script>\n<script>\n{PARTS}\n{scripts}</script>\n</body></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_cannot_leave_its_script() {
        let hostile = "</script><script>alert(1)</script><!--";
        let page = plan_page(&serde_json::json!({ "model": hostile, "cluster": "a & b", "gpus": 8 }));
        assert!(!page.contains("alert(1)</script>"), "the document ends its script");
        assert!(page.contains("\\u003c/script>\\u003cscript>alert(1)"));
        assert!(
            page.contains("<title>&lt;/script>&lt;script>alert(1)&lt;/script>&lt;!-- on 8 a &amp; b: plan</title>")
        );
    }

    #[test]
    fn scripts_end_where_the_page_says() {
        for script in [PLOT, PARTS, PLAN, PLANNER] {
            assert!(!script.to_lowercase().contains("</script"), "an asset ends its script");
        }
        let page = plan_page(&Value::Null);
        assert_eq!(page.matches("</script>").count(), 3);
        assert!(page.len() < 400_000, "{} bytes", page.len());
    }

    #[test]
    fn pages_load_nothing() {
        for asset in [PARTS, PLAN, PLANNER, STYLE] {
            for loading in ["http:", "https:", "import(", "url(", "XMLHttpRequest"] {
                assert!(!asset.contains(loading), "{loading}");
            }
        }
        let (still, planner) = (plan_page(&Value::Null), planner_page(&Value::Null));
        assert!(!still.contains("connect-src") && planner.contains("default-src 'none'"));
        assert_eq!((PLAN.matches("fetch(").count(), PLANNER.matches("fetch(\"plan\"").count()), (0, 1));
        assert!(planner.contains("connect-src 'self'"));
    }
}
