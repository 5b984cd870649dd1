//! Prices of the rank whose experts are chosen most.

use quadrille_cost::native::{Framework, Price};
use quadrille_spec::{
    Activations, Axis, Block, Cluster, Dispatch, Imbalance, Layout, LayoutRequest, MeasuredLoads, Model, Schedule,
};

use crate::case::{Case, changed, fixed_mixed, frameworks};

fn price(case: &Case, framework: Framework) -> Option<Price> {
    let problem = case.problem(framework);
    problem.check_placed(&case.layout).ok()?;
    Some(problem.price_layout(&case.layout).unwrap_or_else(|error| panic!("{error}: {:?}", case.layout)))
}

/// Sixteen experts of which a token chooses two, with more of the model's file, on so many expert ranks.
fn case(more: &str, expert: usize, expert_rows: usize) -> Case {
    let text = format!(
        "name = 'mixture'\nlayers = 2\nhidden = 512\nheads = 8\nvocab = 1000\nseq_len = 256\nexperts = 16\n{more}"
    );
    let model = Model::from_toml(&text, &[]).unwrap();
    let grid = format!("expert={expert}").parse().unwrap();
    let request = LayoutRequest { expert_rows, ..LayoutRequest::new(grid, 4 * expert) };
    let layout = Layout::new(&model, &request).unwrap();
    Case { layout, model, cluster: Cluster::preset("selene").unwrap(), imbalance: 1.0 }
}

#[test]
fn the_more_unequal_loads_are_the_longer_a_step_takes() {
    for framework in frameworks().filter(|framework| framework.sparsity.is_none()) {
        let mut spread = 0;
        let mut slower = 0;
        for case in fixed_mixed(Schedule::OneForwardOneBackward, 60) {
            let unequal: Option<Vec<Case>> =
                [1.0, 1.1, 1.5, 2.0].into_iter().map(|times| case.unequal(times)).collect();
            let prices: Option<Vec<Price>> =
                unequal.and_then(|cases| cases.iter().map(|case| price(case, framework)).collect());
            let (Some(prices), Some(equal)) = (prices, price(&case, framework)) else { continue };
            assert_eq!(prices[0], equal, "loads that are as unequal as equal ones");
            for pair in prices.windows(2) {
                let [less, more] = [&pair[0], &pair[1]];
                assert!(less.seconds <= more.seconds, "{} {:?}", framework.name, case.layout);
                // Other ranks have what this one has not.
                assert_eq!((less.model_flops, less.executed_flops), (more.model_flops, more.executed_flops));
                if framework.reserves_expert_rows {
                    assert_eq!(less.memory, more.memory)
                } else {
                    assert!(less.memory.total() <= more.memory.total(), "{}", framework.name)
                }
            }
            // Where tokens choose all experts, loads are equal.
            let chooses = |block: &Block| block.feed_forward.experts().is_some_and(|it| it.per_token < it.count);
            let is_spread =
                case.layout.grid.size_of(case.layout.experts_over) > 1 && case.model.blocks.kinds().iter().any(chooses);
            let is_slower = prices[3].seconds > equal.seconds;
            assert!(is_spread || !is_slower, "{} {:?}", framework.name, case.layout);
            (spread, slower) = (spread + usize::from(is_spread), slower + usize::from(is_slower));
        }
        // The host may take longer than the device in either case.
        assert!(slower > 3 && 4 * slower >= 3 * spread, "{} {slower} of {spread}", framework.name);
    }
}

/// All that comes to experts grows: what they compute, and what is sent to them; nothing else.
#[test]
fn experts_take_so_many_times_as_long() {
    let seconds = |imbalance| {
        let case = Case { imbalance, ..case("", 8, 4) };
        let problem = case.problem(Framework::QUADRILLE);
        let price = problem.price_layout(&case.layout).unwrap();
        [price.parts.compute, price.parts.communication[Axis::Expert as usize]]
    };
    let equal = seconds(1.0);
    let [one, two] = [seconds(2.0), seconds(3.0)];
    for which in [0, 1] {
        let [first, second] = [one[which] - equal[which], two[which] - one[which]];
        assert!(first > 0.0 && (second / first - 1.0).abs() < 0.05, "{equal:?} {one:?} {two:?}");
    }
}

/// No more rows come to a rank than tokens can choose.
#[test]
fn what_tokens_choose_has_an_end() {
    // Each token chooses two experts: of two ranks one can have all of them, twice the mean.
    let [most, more] = [2.0, 9.0].map(|times| price(&case("", 2, 0).unequal(times).unwrap(), Framework::QUADRILLE));
    assert_eq!(most, more);
    // The parts of queues that ranks along x send are no fuller than all that come.
    let replicated = |times| {
        let case = case("experts_per_token = 8\n", 4, 0);
        let on_x = changed(&case, |request| {
            request.grid = "x=2,expert=4".parse().unwrap();
            request.activations = Activations::Replicated;
            request.dispatch = Dispatch::Dropped;
        });
        price(&on_x.unwrap().unequal(times).unwrap(), Framework::QUADRILLE).unwrap()
    };
    let [less, most, more] = [1.5, 2.0, 9.0].map(replicated);
    assert!(less.seconds < most.seconds && most == more);
}

#[test]
fn rows_that_there_is_no_room_for_are_refused_with_the_room_that_holds_them() {
    let refused = |case: &Case| {
        let problem = case.problem(Framework::MEGATRON);
        assert_eq!(problem.outline(&case.layout, |_| true, &|| false).unwrap(), None, "a search leaves it out");
        problem.price_layout(&case.layout).unwrap_err().to_string()
    };
    let message = refused(&case("", 8, 0).unequal(2.5).unwrap());
    assert!(
        message.contains("`search.imbalance` = 2.5") && message.contains("use `layout.expert_rows` 3"),
        "{message}"
    );
    let message = refused(&case("", 8, 1).unequal(1.5).unwrap());
    assert!(message.contains("use `layout.expert_rows` 2"), "{message}");
    assert!(price(&case("", 8, 3).unequal(2.5).unwrap(), Framework::MEGATRON).is_some());
}

#[test]
fn measured_loads_are_those_of_the_ranks_that_share_experts() {
    let mut loads = [4; 16];
    (loads[3], loads[4]) = (8, 0);
    let measured = Imbalance::Measured(MeasuredLoads::new(&[&loads]).unwrap());
    // Two neighbours have 12 of 64, four of them 20.
    for (expert, times) in [(8, 12.0 * 8.0 / 64.0), (4, 20.0 * 4.0 / 64.0)] {
        let case = case("", expert, 0);
        let problem = case.problem(Framework::MEGATRON).with_imbalance(&measured).unwrap();
        assert_eq!(
            Some(problem.price_layout(&case.layout).unwrap()),
            price(&case.unequal(times).unwrap(), Framework::MEGATRON)
        );
    }
}

#[test]
fn experts_with_places_have_no_fullest_rank() {
    let case = case("capacity = 1.0\n", 4, 0);
    let problem = case.problem(Framework::MEGATRON);
    let message = problem.with_imbalance(&Imbalance::Times(1.5)).unwrap_err().to_string();
    assert!(message.contains("model.capacity") && message.contains("leave it out"), "{message}");
}
