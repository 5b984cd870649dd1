//! How unequal loads of experts can be: where tokens choose as much as they can of what one rank has, and as little.

use std::borrow::Cow;
use std::collections::BTreeSet;

use quadrille_spec::Coordinate;

use crate::queues::counted_axes;
use crate::{Extent, Loads, Queues, StageProgram, ValueId};

impl StageProgram {
    /// Loads of the first microbatch with which the rank at `place` has the most rows: all tokens choose its experts, as many of
    /// them as they choose. None of a program whose experts all have a capacity, or are not spread.
    pub fn crowded(&self, place: Coordinate) -> Loads {
        self.extreme(|own, expert| !own.contains(&expert), place)
    }

    /// Those with which it has the fewest: tokens choose others, as long as there are some.
    pub fn deserted(&self, place: Coordinate) -> Loads {
        self.extreme(|own, expert| own.contains(&expert), place)
    }

    /// Whether the rank at `place` has room for the rows of these loads.
    pub fn has_room(&self, loads: &Loads, place: Coordinate) -> bool {
        self.values.iter().all(|value| {
            let queues = value.counts.and_then(|counts| loads.get(&(counts, 0)));
            let rows = queues.map_or(0, |queues| queues.rows(value, &self.layout, place));
            rows * value.local_cols <= value.room(&self.layout)
        })
    }

    /// Whether the fullest rank has more rows of experts than there is room for.
    pub fn is_overfull(&self) -> bool {
        self.values.iter().any(|value| value.counts.is_some() && value.local_elements > value.room(&self.layout))
    }

    /// The program with the sizes of equal loads.
    pub fn balanced(&self) -> Cow<'_, Self> {
        if self.practice.imbalance == 1.0 {
            return Cow::Borrowed(self);
        }
        let mut balanced = self.clone();
        balanced.practice.imbalance = 1.0;
        balanced.resize(&self.layout);
        Cow::Owned(balanced)
    }

    /// All tokens choose the same experts, those first of which `last` does not say that they come last.
    fn extreme(&self, last: impl Fn(&std::ops::Range<usize>, usize) -> bool, place: Coordinate) -> Loads {
        let layout = &self.layout;
        let ranks = layout.grid.size_of(layout.experts_over);
        let mut loads = Loads::new();
        if ranks == 1 {
            return loads;
        }
        let sources = layout.grid.size_of(counted_axes(layout));
        for (counts, experts, per_token) in self.queues() {
            let blocks: Vec<_> = layout.experts_over.iter().rev().collect();
            let first = layout.grid.shard_index(place, &blocks) * (experts / ranks);
            let own = first..first + experts / ranks;
            let mut chosen: Vec<usize> = (0..experts).collect();
            chosen.sort_by_key(|expert| last(&own, *expert));
            let tokens = Extent::Tokens.of(layout) / Extent::TokenRanks.of(layout);
            let mut of_source = vec![0; experts];
            chosen[..per_token].iter().for_each(|expert| of_source[*expert] = tokens);
            loads.insert((counts, 0), Queues::new(experts, of_source.repeat(sources)));
        }
        loads
    }

    /// The values that hold counts of queues, with how many experts there are and how many a token chooses.
    fn queues(&self) -> BTreeSet<(ValueId, usize, usize)> {
        let queues = self.values.iter().filter_map(|value| match (value.counts, value.extents[0]) {
            (Some(counts), Extent::Queues { experts, per_token }) => Some((counts, experts, per_token)),
            _ => None,
        });
        queues.collect()
    }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{Activations, Layout, LayoutRequest, Model, Routing};

    use super::*;
    use crate::{StepProgram, Verdict, predict_rank, predict_rank_loaded};

    fn program(grid: &str, over: &str, activations: Activations, per_token: usize) -> StepProgram {
        let text = format!(
            "name = 'crowds'\nlayers = 1\nhidden = 8\nheads = 4\nvocab = 13\nseq_len = 8\nexperts = 8\n\
             experts_per_token = {per_token}\nrouter_normalize = false\n"
        );
        let model = Model::from_toml(&text, &[]).unwrap();
        let request = LayoutRequest {
            experts_over: Some(over.parse().unwrap()),
            activations,
            microbatch: Some(2),
            ..LayoutRequest::new(grid.parse().unwrap(), 16)
        };
        StepProgram::new(&model, &Layout::new(&model, &request).unwrap()).unwrap()
    }

    /// Work of a rank whose loads are these in the first of two microbatches and equal in the second.
    fn flops(program: &StepProgram, rank: usize, loads: &Loads) -> u64 {
        let routing = Routing::native(program.layout.grid.ranks());
        predict_rank_loaded(program, rank, &routing, Verdict::Kept, loads).flops.total()
    }

    #[test]
    fn all_rows_come_or_none() {
        for (grid, over, activations) in [
            ("x=2,expert=4", "expert", Activations::Scattered),
            ("x=2,z=2,expert=2", "z,expert", Activations::Scattered),
            ("x=2,expert=2", "x,expert", Activations::Replicated),
            ("expert=2,data=2", "expert", Activations::Scattered),
        ] {
            for per_token in [1, 2, 5] {
                let program = program(grid, over, activations, per_token);
                let ranks = program.layout.grid.size_of(program.layout.experts_over);
                for rank in 0..program.layout.grid.ranks() {
                    let stage = program.of_rank(rank);
                    let place = program.layout.grid.coordinate(rank);
                    let equal = predict_rank(&program, rank).flops.total();
                    let [most, least] = [stage.crowded(place), stage.deserted(place)];
                    assert!(stage.has_room(&least, place) && stage.has_room(&most, place), "{grid} {per_token}");
                    let [most, least] = [most, least].map(|loads| flops(&program, rank, &loads));
                    assert!(least < equal && equal < most, "{grid} {per_token}: {least} {equal} {most}");
                    // Of what experts compute of k choices, a rank has its share, all that are of its own, or what is left.
                    let own = 8 / ranks;
                    let times = |chosen: usize| (ranks * chosen) as f64 / per_token as f64;
                    let [all, none] = [times(per_token.min(own)), times(per_token.saturating_sub(8 - own))];
                    let of_experts = (most - least) as f64 / (all - none);
                    let fewer = equal as f64 - least as f64;
                    assert!((fewer - (1.0 - none) * of_experts).abs() < 1.0, "{grid} {per_token}");
                }
            }
        }
    }

    #[test]
    fn a_crowd_may_need_more_room_than_there_is() {
        let program = program("expert=4", "expert", Activations::Scattered, 2);
        let layout = Layout { expert_rows: 1, ..program.layout.clone() };
        let narrow = StepProgram::new(&program.model, &layout).unwrap();
        let place = layout.grid.coordinate(1);
        let [wide, narrow] = [&program, &narrow].map(|program| {
            let stage = &program.stages[0];
            [stage.crowded(place), stage.deserted(place)].map(|loads| stage.has_room(&loads, place))
        });
        assert_eq!((wide, narrow), ([true; 2], [false, true]));
    }

    #[test]
    fn experts_with_places_have_no_crowds() {
        let model = Model::from_toml(Model::preset_text("moe-tiny").unwrap(), &[]).unwrap();
        let layout = Layout::new(&model, &LayoutRequest::new("expert=2".parse().unwrap(), 4)).unwrap();
        let program = StepProgram::new(&model, &layout).unwrap();
        assert!(program.stages[0].crowded(layout.grid.coordinate(0)).is_empty());
    }
}
