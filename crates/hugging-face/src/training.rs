//! What a model has for its training alone, which the library has in another form or not at all.

use quadrille_spec::{BalanceScope, Capacity, Experts, FeedForward, Model};
use serde_json::Value;

use crate::Family;
use crate::config_experts::first_experts;

/// The model without its name and what decides its training only: two that are equal then give the same logits.
pub(crate) fn computed(model: &Model) -> Model {
    let blocks = model.blocks.each(|block| {
        if let FeedForward::Experts(experts) = &mut block.feed_forward {
            experts.capacity = None;
            experts.router.balance = BalanceScope::None;
            (experts.router.balance_loss, experts.router.z_loss) = (0.0, 0.0);
        }
    });
    Model { name: String::new(), dropout: 0.0, blocks, ..model.clone() }
}

/// Writes the library's coefficient of the balance loss where a configuration says another factor than the model.
pub(crate) fn set_balance(config: &mut Value, model: &Model) {
    let factor = |model: &Model| first_experts(model).map(|experts| experts.router.balance_loss);
    let said = Model::from_hugging_face(&config.to_string(), &[]);
    let said = said.ok().and_then(|said| factor(&said));
    if factor(model).is_some_and(|ours| Some(ours) != said) {
        config["router_aux_loss_coef"] = model.router_aux_loss_coef().into();
    }
}

/// What of the experts a configuration of the family cannot say, for people.
pub(crate) fn left_out(model: &Model, family: Family) -> Vec<String> {
    let mut notes = Vec::new();
    let mixtures = || model.blocks.kinds().iter().filter_map(|block| block.feed_forward.experts());
    let drops = |experts: &Experts, capacity: &Capacity| {
        let group = capacity.group(model.seq_len);
        capacity.slots(experts, group) < group
    };
    let dropping = mixtures().find_map(|experts| experts.capacity.filter(|capacity| drops(experts, capacity)));
    if let Some(Capacity { factor, .. }) = dropping {
        notes.push(format!("experts of {family} drop no token: the capacity {factor} is left out of config.json"));
    }
    if let Some(factor) = mixtures().map(|experts| experts.router.z_loss).find(|factor| *factor > 0.0) {
        notes.push(format!(
            "{family} has no loss of large logits of routers: its factor {factor} is left out of config.json"
        ));
    }
    notes
}
