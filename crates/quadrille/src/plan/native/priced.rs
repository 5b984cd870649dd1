//! `quadrille explain --price`: one layout, priced and explained.

use clap::Args;
use quadrille_cost::native::Candidate;
use quadrille_engine::Hyper;
use quadrille_plan::native::{Explanation, Question, Ranked, Reserve, Space};
use quadrille_report::plan::{
    entry, explanation_document, explanation_text, headline, memory_table, parts_table, ranking,
};
use serde_json::json;

use crate::arguments::ExplainArguments;
use crate::failure::Failure;
use crate::output::{print_json, print_text};
use crate::plan::native::question::framework;
use crate::quantities::{check_reserve, reserve};
use crate::settings;

/// What a layout costs.
#[derive(Debug, Args)]
pub struct PriceArguments {
    /// Price the layout on --cluster by the native model and explain it: what binds, what faster hardware or another choice
    /// would give
    #[arg(long, conflicts_with_all = ["program", "ledger", "rank", "timeline", "trace"])]
    pub price: bool,
    /// What trains, as in `plan` [default: megatron with --price, else quadrille]
    #[arg(long, value_name = "NAME")]
    pub framework: Option<String>,
    /// Memory of a device that stays free, e.g. 10% or 4GB [default: 5%]
    #[arg(long, value_name = "SIZE|PERCENT", value_parser = reserve, requires = "price")]
    pub memory_reserve: Option<Reserve>,
}

/// Prices and explains the layout.
pub fn run(arguments: &ExplainArguments) -> Result<(), Failure> {
    let model = settings::settings(&arguments.model, "gpt-demo", Hyper::default())?.model;
    let typed = settings::typed(&arguments.layout, arguments.dtype, &settings::Defaults::USUAL)?;
    let layout = settings::resolve(&typed, &model)?;
    let price = &arguments.price;
    let question = Question {
        devices: layout.grid.ranks(),
        global_batch: layout.global_batch,
        seq_len: layout.seq_len,
        model,
        cluster: typed.cluster,
        framework: framework(price.framework.as_deref(), arguments.dtype, &typed.said)?,
        space: Space::default(),
        per_node: Some(layout.per_node),
        reserve: price.memory_reserve.unwrap_or(Reserve::USUAL),
        tokens: None,
        price_per_hour: None,
        time_limit: None,
    };
    check_reserve(question.reserve, &question.cluster)?;
    let setting = question.setting()?;
    let candidate = Candidate::of(&layout, &question.cluster);
    let ranked = Ranked { candidate, price: setting.price(&layout)? };
    let explanation = Explanation::new(&setting, &layout, ranked, None)?;
    // Unknown where the device's memory is.
    let fits = setting.capacity.map(|capacity| ranked.price.memory.total() <= capacity);
    if arguments.json {
        let mut document = json!({ "model": question.model.name, "cluster": question.cluster.name, "cost": "native" });
        document["framework"] = json!(question.framework.name);
        document["device_memory_bytes"] = json!(question.cluster.device_memory);
        document["reserved_bytes"] = json!(question.reserved()?);
        document["fits"] = json!(fits);
        document["plan"] = entry(&question, &setting, &ranked, &layout)?;
        document["explanation"] = explanation_document(&explanation, &setting);
        return print_json(&document);
    }
    let mut text = headline(&question, &setting)? + "\n" + &ranking(&question, &setting, &[&ranked]);
    if fits == Some(false) {
        text += "it does not fit into the memory of a device\n";
    }
    text += &format!("\nparts of a step\n{}", parts_table(&[&ranked]));
    text += &format!("\nmemory of the rank that needs most\n{}", memory_table(&setting, &[&ranked]));
    print_text(&(text + &explanation_text(&explanation, &setting)))
}
