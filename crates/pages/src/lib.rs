//! Pages that open without a network, from a file or from a server: one document of what was found, and what draws it.
//!
//! A page is its document as JSON with the styles, the components (tables that sort and filter, charts) and the script of its
//! kind beside it. It loads nothing, and its policy forbids that it does. Charts are those of Observable Plot, of which
//! `assets/README.md` says the version.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout, clippy::print_stderr)
)]

use serde_json::Value;

const STYLE: &str = include_str!("../assets/style.css");
const PLOT: &str = include_str!("../assets/plot.js");
const PARTS: &str = include_str!("../assets/parts.js");
const CHARTS: &str = include_str!("../assets/charts.js");
const PLAN: &str = include_str!("../assets/plan.js");
const PLANNER: &str = include_str!("../assets/planner.js");
const SWEEP: &str = include_str!("../assets/sweep.js");
const RUN: &str = include_str!("../assets/run.js");
const PUBLISHED: &str = include_str!("../assets/published.js");
const LOCAL: &str = include_str!("../assets/local.js");
const COLLECTIVES: &str = include_str!("../assets/collectives.js");
const MEMORIZE: &str = include_str!("../assets/memorize.js");
const MESH: &str = include_str!("../assets/mesh.js");
const TIMELINE: &str = include_str!("../assets/timeline.js");
const EXPLAIN: &str = include_str!("../assets/explain.js");

/// What a page may do: its own scripts and styles, no request.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
     form-action 'none'";

/// The page of a plan: the document that `plan` prints as JSON, with the `exports` of the advised layout.
///
/// ```
/// let page = quadrille_pages::plan_page(&serde_json::json!({ "model": "</script>" }));
/// assert!(page.starts_with("<!DOCTYPE html>") && !page.contains("\"</script>"));
/// ```
pub fn plan_page(document: &Value) -> String {
    let title = format!("{} on {} {}: plan", name(document, "model"), document["gpus"], name(document, "cluster"));
    page(&title, document, POLICY, &[MESH, TIMELINE, PLAN, "show(drawPlan);"])
}

/// The page of a sweep: what varies, and for every point an entry of `plan`.
pub fn sweep_page(document: &Value) -> String {
    let variables: Vec<&str> =
        document["variables"].as_array().into_iter().flatten().map(|variable| name(variable, "name")).collect();
    let [model, cluster] = ["model", "cluster"].map(|field| name(document, field));
    page(&format!("{model} on {cluster} by {}: sweep", variables.join(" and ")), document, POLICY, &[PLAN, SWEEP])
}

/// The page of a run: its curves, its step, its events and checkpoints.
pub fn run_page(document: &Value) -> String {
    page(&format!("{}: {}", name(document, "run"), name(document, "model")), document, POLICY, &[RUN])
}

/// The page of published runs beside what is predicted of them.
pub fn published_page(document: &Value) -> String {
    page("Published runs: predicted and measured", document, POLICY, &[PUBLISHED])
}

/// The page of layouts that were predicted and measured on one machine.
pub fn local_page(document: &Value) -> String {
    let model = name(&document["model"], "name");
    let cluster = name(document, "cluster");
    page(&format!("{model} on {cluster}: predicted and measured steps"), document, POLICY, &[LOCAL])
}

/// The page of collectives that were measured: the document that `bench collectives` prints as JSON.
pub fn collectives_page(document: &Value) -> String {
    page("Collectives: speed-up over the native ones", document, POLICY, &[COLLECTIVES])
}

/// The page of documents that were learned by heart.
pub fn memorize_page(document: &Value) -> String {
    page(&format!("{}: documents memorised", name(&document["model"], "name")), document, POLICY, &[MEMORIZE])
}

fn name<'a>(document: &'a Value, field: &str) -> &'a str {
    document[field].as_str().unwrap_or_default()
}

/// The page that asks its server for plans, by `POST plan`, and draws the answers: `choices` are the names of `models`,
/// `clusters`, `frameworks` and `products` that it offers.
pub fn planner_page(choices: &Value) -> String {
    page("Quadrille: planner", choices, &format!("{POLICY}; connect-src 'self'"), &[MESH, TIMELINE, PLAN, PLANNER])
}

/// The page of a layout that is explained: the document that `quadrille_report::explained` makes for it.
pub fn explain_page(document: &Value) -> String {
    let title = format!("{}: a layout explained", document["model"]["name"].as_str().unwrap_or_default());
    page(&title, document, POLICY, &[MESH, TIMELINE, EXPLAIN, "show(drawExplained);"])
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
         <script>\n{PLOT}</script>\n<script>\n{PARTS}\n{CHARTS}\n{scripts}</script>\n</body></html>\n"
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

    const SCRIPTS: [&str; 13] =
        [PARTS, CHARTS, MESH, TIMELINE, PLAN, PLANNER, EXPLAIN, SWEEP, RUN, PUBLISHED, LOCAL, COLLECTIVES, MEMORIZE];

    #[test]
    fn scripts_end_where_the_page_says() {
        for script in SCRIPTS.into_iter().chain([PLOT]) {
            assert!(!script.to_lowercase().contains("</script"), "an asset ends its script");
        }
        let null = &Value::Null;
        let pages = [plan_page, planner_page, sweep_page, run_page, published_page, local_page, collectives_page];
        for page in pages.into_iter().chain([memorize_page, explain_page as fn(&Value) -> String]).map(|of| of(null)) {
            assert_eq!(page.matches("</script>").count(), 3);
            assert!(page.len() < 400_000, "{} bytes", page.len());
        }
    }

    #[test]
    fn pages_load_nothing() {
        // The name of what drawings are elements of is no address.
        let named = MESH.replace("\"http://www.w3.org/2000/svg\"", "");
        let others = SCRIPTS.into_iter().filter(|script| *script != MESH);
        for asset in others.chain([STYLE, &named]) {
            for loading in ["http:", "https:", "import(", "url(", "XMLHttpRequest"] {
                assert!(!asset.contains(loading), "{loading}");
            }
        }
        let planner = planner_page(&Value::Null);
        assert!(!run_page(&Value::Null).contains("connect-src") && planner.contains("default-src 'none'"));
        assert_eq!(SCRIPTS.iter().map(|script| script.matches("fetch(").count()).sum::<usize>(), 1);
        let posts = ["await posted(`plan?round=", "posted(\"layout\","].map(|post| PLANNER.matches(post).count());
        assert_eq!((PLANNER.matches("fetch(path,").count(), posts), (1, [1, 1]));
        assert!(planner.contains("connect-src 'self'"));
    }
}
