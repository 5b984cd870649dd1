//! The experts of a block as the fields of a model's file say them.

use super::table::Scalar;
use super::{MAX_EXPERTS, MAX_FACTOR, MAX_FFN, ModelFile};
use crate::model_file::block::factor;
use crate::toml_text::check_size;
use crate::{
    BalanceScope, Capacity, DropOrder, ExpertGroups, Experts, FeedForward, Perceptron, Router, RouterScores, SpecError,
};

/// What the balance loss is multiplied with where nobody says it (Switch Transformer: Fedus et al. 2021).
const BALANCE_LOSS: f64 = 0.01;

impl ModelFile {
    /// What the fields say of the second half of a block.
    pub(super) fn feed_forward(&self) -> Result<FeedForward, SpecError> {
        match self.experts.unwrap_or(0) {
            0 => {
                self.check_without_experts()?;
                Ok(FeedForward::Dense(self.perceptron()?))
            }
            count => Ok(FeedForward::Experts(self.mixture(count)?)),
        }
    }

    /// Whether the file says that a block has experts, if blocks do.
    pub(super) fn places_experts_at(&self, block: usize) -> bool {
        let every = self.expert_every.unwrap_or(1).max(1);
        let first = self.expert_first.unwrap_or(0);
        block.checked_sub(first).is_some_and(|distance| (distance + 1).is_multiple_of(every))
    }

    /// Refuses experts that no block has.
    pub(super) fn check_placed(&self) -> Result<(), SpecError> {
        let layers = self.layers;
        if let Some(every) = self.expert_every {
            check_size("expert_every", every, layers)?;
        }
        if self.experts.unwrap_or(0) == 0 || (0..layers).any(|block| self.places_experts_at(block)) {
            return Ok(());
        }
        let (field, value) = match self.expert_first {
            Some(first) if first >= layers => ("expert_first", first),
            _ => ("expert_every", self.expert_every.unwrap_or(1)),
        };
        let rule = format!("some of the {layers} blocks have the experts, or there are none");
        Err(SpecError::invalid(field, value, rule, "use a smaller one"))
    }

    /// Says nothing of experts any more.
    pub(super) fn leave_experts(&mut self) {
        *self = Self {
            experts: None,
            experts_per_token: None,
            expert_ffn: None,
            expert_every: None,
            expert_first: None,
            shared_ffn: None,
            router: None,
            router_groups: None,
            router_top_groups: None,
            router_normalize: None,
            router_scale: None,
            balance: None,
            balance_loss: None,
            router_z_loss: None,
            router_bias_rate: None,
            capacity: None,
            capacity_group: None,
            drop: None,
            ..std::mem::take(self)
        };
    }

    fn check_without_experts(&self) -> Result<(), SpecError> {
        let said = [
            ("experts_per_token", self.experts_per_token.map(|it| it.to_string())),
            ("expert_ffn", self.expert_ffn.map(|it| it.to_string())),
            ("expert_every", self.expert_every.map(|it| it.to_string())),
            ("expert_first", self.expert_first.map(|it| it.to_string())),
            ("shared_ffn", self.shared_ffn.map(|it| it.to_string())),
            ("router", self.router.map(|it| it.to_string())),
            ("router_groups", self.router_groups.map(|it| it.to_string())),
            ("router_top_groups", self.router_top_groups.map(|it| it.to_string())),
            ("router_normalize", self.router_normalize.map(|it| it.to_string())),
            ("router_scale", self.router_scale.map(|it| it.to_string())),
            ("balance", self.balance.map(|it| it.to_string())),
            ("balance_loss", self.balance_loss.map(|it| it.to_string())),
            ("router_z_loss", self.router_z_loss.map(|it| it.to_string())),
            ("router_bias_rate", self.router_bias_rate.map(|it| it.to_string())),
            ("capacity", self.capacity.map(|it| it.to_string())),
            ("capacity_group", self.capacity_group.map(|it| it.to_string())),
            ("drop", self.drop.map(|it| it.to_string())),
        ];
        match said.into_iter().find_map(|(field, value)| Some((field, value?))) {
            None => Ok(()),
            Some((field, value)) => {
                let remedy = "give `model.experts`=8 or another number, or leave it out";
                Err(SpecError::invalid(field, value, "it is said of experts, and there are none", remedy))
            }
        }
    }

    fn mixture(&self, count: usize) -> Result<Experts, SpecError> {
        check_size("experts", count, MAX_EXPERTS)?;
        if count == 1 {
            let remedy = "use 2 or more, or 0 for a perceptron";
            return Err(SpecError::invalid("experts", 1, "a router chooses among at least 2", remedy));
        }
        let per_token = self.experts_per_token.unwrap_or(2);
        check_size("experts_per_token", per_token, count)?;
        let width = self.expert_ffn.or(self.ffn).unwrap_or(4 * self.hidden);
        check_size("expert_ffn", width, MAX_FFN)?;
        if width.saturating_mul(count) > MAX_FFN {
            let rule = format!("all {count} experts together have at most {MAX_FFN} columns");
            return Err(SpecError::invalid("expert_ffn", width, rule, "use a smaller one, or fewer experts"));
        }
        let shared = self.shared_ffn.filter(|width| *width > 0);
        if let Some(width) = shared.filter(|width| *width > MAX_FFN) {
            let rule = format!("it must lie in 0..={MAX_FFN}");
            return Err(SpecError::invalid("shared_ffn", width, rule, "use a smaller one, or 0 for none"));
        }
        let activation = self.activation;
        let perceptron = |width| Perceptron { width, activation, up_bias: false, down_bias: false };
        Ok(Experts {
            count,
            per_token,
            expert: perceptron(width),
            shared: shared.map(perceptron),
            router: self.described_router(count, per_token)?,
            capacity: self.described_capacity()?,
        })
    }

    fn described_router(&self, count: usize, per_token: usize) -> Result<Router, SpecError> {
        let normalize = self.router_normalize.unwrap_or(per_token > 1);
        if normalize && per_token == 1 {
            let rule = "the weight of a single expert would always be 1, and its router would have no gradient";
            let remedy = "use router_normalize = false, or more experts_per_token";
            return Err(SpecError::invalid("router_normalize", true, rule, remedy));
        }
        let balance = self.balance.unwrap_or(BalanceScope::Sequence);
        let balance_loss = coefficient("balance_loss", self.balance_loss.unwrap_or(BALANCE_LOSS))?;
        Ok(Router {
            scores: self.router.unwrap_or(RouterScores::Softmax),
            groups: self.described_groups(count, per_token)?,
            normalize,
            scale: factor("router_scale", self.router_scale.unwrap_or(1.0), 1.0 / MAX_FACTOR)?,
            balance,
            balance_loss: if balance == BalanceScope::None { 0.0 } else { balance_loss },
            z_loss: coefficient("router_z_loss", self.router_z_loss.unwrap_or(0.0))?,
            bias_rate: bias_rate(self.router_bias_rate.unwrap_or(0.0))?,
        })
    }

    fn described_groups(&self, experts: usize, per_token: usize) -> Result<Option<ExpertGroups>, SpecError> {
        let count = self.router_groups.filter(|count| *count > 1);
        let (field, value, rule, remedy) = match (count, self.router_top_groups) {
            (None, None | Some(0)) => return Ok(None),
            (None, Some(chosen)) => {
                let rule = "it is said of groups of experts, and there are none";
                ("router_top_groups", chosen, rule, "give `model.router_groups`, or leave it out")
            }
            (Some(count), None) => {
                let rule = "it must be said how many of them a token chooses";
                ("router_groups", count, rule, "give `model.router_top_groups` too, or leave both out")
            }
            (Some(count), Some(chosen)) => {
                SpecError::check_divides("router_groups", count, "experts", experts)?;
                let groups = ExpertGroups { count, chosen };
                check_chosen_groups(groups, experts, per_token)?;
                return Ok(Some(groups));
            }
        };
        Err(SpecError::invalid(field, value, rule, remedy))
    }

    fn described_capacity(&self) -> Result<Option<Capacity>, SpecError> {
        if self.capacity == Some(0.0) {
            return Ok(None);
        }
        let Some(places) = self.capacity else {
            let said = [
                ("capacity_group", self.capacity_group.filter(|group| *group > 0).map(|it| it.to_string())),
                ("drop", self.drop.map(|it| it.to_string())),
            ];
            return match said.into_iter().find_map(|(field, value)| Some((field, value?))) {
                None => Ok(None),
                Some((field, value)) => {
                    let remedy = "give `model.capacity`, e.g. 1.25, or leave it out";
                    Err(SpecError::invalid(field, value, "experts without a capacity drop nothing", remedy))
                }
            };
        };
        let group = self.capacity_group.filter(|group| *group > 0);
        group.map_or(Ok(()), |group| SpecError::check_divides("capacity_group", group, "seq_len", self.seq_len))?;
        Ok(Some(Capacity {
            factor: factor("capacity", places, 1.0 / MAX_FACTOR)?,
            group,
            drop: self.drop.unwrap_or(DropOrder::Choice),
        }))
    }
}

/// Refuses groups of which a token cannot choose as many experts of each.
fn check_chosen_groups(groups: ExpertGroups, experts: usize, per_token: usize) -> Result<(), SpecError> {
    let ExpertGroups { count, chosen } = groups;
    let refuse = |rule: String, remedy: &str| Err(SpecError::invalid("router_top_groups", chosen, rule, remedy));
    if !(1..count).contains(&chosen) {
        let rule = format!("a token chooses at least 1 of the {count} groups, and not all of them");
        return refuse(rule, "use another number, or no groups");
    }
    if !per_token.is_multiple_of(chosen) {
        let rule =
            format!("as many of each group count for it: the number must divide experts_per_token = {per_token}");
        return refuse(rule, "change one of them");
    }
    let room = chosen * (experts / count);
    if per_token > room {
        let rule =
            format!("the groups that a token chooses have {room} experts, fewer than experts_per_token = {per_token}");
        return refuse(rule, "use more");
    }
    Ok(())
}

/// What a loss is multiplied with; 0 is none.
fn coefficient(field: &str, value: f64) -> Result<f64, SpecError> {
    if (0.0..=MAX_FACTOR).contains(&value) {
        return Ok(value);
    }
    let rule = format!("it must lie in 0..={MAX_FACTOR}");
    Err(SpecError::invalid(field, value, rule, "use e.g. 0.01, or 0 for no such loss"))
}

/// By how much biases move a step; 0 is none.
fn bias_rate(value: f64) -> Result<f64, SpecError> {
    if (0.0..=1.0).contains(&value) {
        return Ok(value);
    }
    let rule = "it is added to scores, which lie in 0..=1, and must lie there itself";
    Err(SpecError::invalid("router_bias_rate", value, rule, "use e.g. 0.001, or 0 for no biases"))
}

/// Every field of the second half of a block but the activation's, with its value.
pub(super) fn feed_forward_fields(feed_forward: &FeedForward) -> Vec<(&'static str, Scalar)> {
    let size = |size: usize| Scalar::Size(size as u64);
    match feed_forward {
        FeedForward::Dense(perceptron) => vec![
            ("ffn", size(perceptron.width)),
            ("up_bias", Scalar::Flag(perceptron.up_bias)),
            ("down_bias", Scalar::Flag(perceptron.down_bias)),
            ("experts", size(0)),
        ],
        FeedForward::Experts(Experts { count, per_token, expert, shared, router, capacity }) => {
            let mut fields = vec![
                ("experts", size(*count)),
                ("experts_per_token", size(*per_token)),
                ("expert_ffn", size(expert.width)),
                ("shared_ffn", size(shared.map_or(0, |shared| shared.width))),
                ("router", Scalar::Name(router.scores.to_string())),
                ("router_groups", size(router.groups.map_or(0, |groups| groups.count))),
                ("router_top_groups", size(router.groups.map_or(0, |groups| groups.chosen))),
                ("router_normalize", Scalar::Flag(router.normalize)),
                ("router_scale", Scalar::Number(router.scale)),
                ("balance", Scalar::Name(router.balance.to_string())),
                ("balance_loss", Scalar::Number(router.balance_loss)),
                ("router_z_loss", Scalar::Number(router.z_loss)),
                ("router_bias_rate", Scalar::Number(router.bias_rate)),
            ];
            let Some(Capacity { factor, group, drop }) = capacity else {
                fields.push(("capacity", Scalar::Number(0.0)));
                return fields;
            };
            fields.push(("capacity", Scalar::Number(*factor)));
            fields.push(("capacity_group", size(group.unwrap_or(0))));
            fields.push(("drop", Scalar::Name(drop.to_string())));
            fields
        }
    }
}

#[cfg(test)]
mod tests;
