use proptest::prelude::*;

use crate::{BalanceScope, Capacity, DropOrder, ExpertGroups, Experts, Model, RouterScores, SpecError};

const SMALL: &str =
    "name = \"small\"\nlayers = 4\nhidden = 12\nheads = 3\nvocab = 7\nseq_len = 8\nexperts = 4\ncapacity = 1.25\n";

fn with(overrides: &[(&str, &str)]) -> Result<Model, SpecError> {
    let owned: Vec<_> = overrides.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Model::from_toml(SMALL, &owned)
}

fn experts(model: &Model, block: usize) -> Experts {
    *model.blocks[block].feed_forward.experts().unwrap()
}

/// By block, how many experts it has.
fn counts(model: &Model) -> Vec<usize> {
    model.blocks.iter().map(|block| block.feed_forward.experts().map_or(0, |it| it.count)).collect()
}

/// What is written of a model is that model.
fn check_round_trip(model: &Model) {
    let text = toml::to_string(model).unwrap();
    assert_eq!(Model::from_toml(&text, &[]).as_ref(), Ok(model), "{text}");
}

#[test]
fn fields_left_out_have_their_usual_values() {
    let model = with(&[]).unwrap();
    let Experts { per_token, expert, shared, router, capacity, .. } = experts(&model, 0);
    assert_eq!((counts(&model), per_token, expert.width, shared), (vec![4; 4], 2, 48, None));
    assert_eq!((expert.up_bias, expert.down_bias), (false, false));
    assert_eq!((router.scores, router.normalize, router.scale), (RouterScores::Softmax, true, 1.0));
    assert_eq!((router.balance, router.balance_loss, router.z_loss), (BalanceScope::Sequence, 0.01, 0.0));
    assert_eq!(capacity, Some(Capacity { factor: 1.25, group: None, drop: DropOrder::Choice }));
    assert_eq!(experts(&with(&[("ffn", "5")]).unwrap(), 0).expert.width, 5);
    assert!(!experts(&with(&[("experts_per_token", "1")]).unwrap(), 0).router.normalize);
    check_round_trip(&model);
}

#[test]
fn blocks_have_experts_by_rule_and_by_table() {
    let placed = |every: &str, first: &str| with(&[("expert_every", every), ("expert_first", first)]);
    assert_eq!(counts(&placed("2", "0").unwrap()), [0, 4, 0, 4]);
    assert_eq!(counts(&placed("1", "3").unwrap()), [0, 0, 0, 4]);
    assert_eq!(counts(&placed("2", "1").unwrap()), [0, 0, 4, 0]);
    let message = |every, first| placed(every, first).unwrap_err().to_string();
    let none = "some of the 4 blocks have the experts, or there are none; use a smaller one";
    assert_eq!(message("1", "4"), format!("expert_first = 4: {none}"));
    assert_eq!(message("3", "2"), format!("expert_every = 3: {none}"));
    assert!(message("0", "0").starts_with("expert_every = 0: it must lie in 1..=4"));

    let dense = with(&[("blocks.0/2.experts", "0"), ("blocks.2.ffn", "9"), ("blocks.3.capacity_group", "4")]).unwrap();
    assert_eq!(counts(&dense), [0, 4, 0, 4]);
    assert_eq!(dense.blocks[2].feed_forward.dense().unwrap().width, 9);
    assert_eq!([1, 3].map(|block| experts(&dense, block).capacity.unwrap().group), [None, Some(4)]);
    let text = SMALL.replace("experts = 4\ncapacity = 1.25\n", "[[blocks]]\nat = [2]\nexperts = 3\ncapacity = 2.0\n");
    assert_eq!(counts(&Model::from_toml(&text, &[]).unwrap()), [0, 0, 3, 0]);
}

#[test]
fn what_is_written_is_read_again() {
    for (every, first) in [("1", "0"), ("2", "0"), ("2", "1"), ("3", "0"), ("1", "2")] {
        for more in [("shared_ffn", "5"), ("blocks.0.heads", "6"), ("blocks.1.experts", "0"), ("biases", "false")] {
            check_round_trip(&with(&[("expert_every", every), ("expert_first", first), more]).unwrap());
        }
    }
    // What is taken back is as if it was never said; what is said after it is not.
    let dense = with(&[("experts", "0")]).unwrap();
    assert!(!dense.has_experts());
    check_round_trip(&dense);
    let after = with(&[("experts", "0"), ("capacity", "1.25")]).unwrap_err().to_string();
    assert!(after.starts_with("capacity = 1.25: it is said of experts, and there are none; give"), "{after}");
    // Files of models without experts do not know of them.
    let text = toml::to_string(&Model::preset("gpt-tiny").unwrap()).unwrap();
    assert!(!["expert", "router", "capacity", "balance"].iter().any(|word| text.contains(word)), "{text}");
}

#[test]
fn refusals_name_field_value_rule_and_remedy() {
    let message = |field, value| with(&[(field, value)]).unwrap_err().to_string();
    let without = SMALL.replace("capacity = 1.25\n", "");
    let dropless = Model::from_toml(&without, &[]).unwrap();
    assert_eq!((experts(&dropless, 0).capacity, with(&[("capacity", "0")]).unwrap()), (None, dropless));
    let ordered = Model::from_toml(&without, &[("drop".into(), "score".into())]).unwrap_err().to_string();
    assert_eq!(
        ordered,
        "drop = score: experts without a capacity drop nothing; give `model.capacity`, e.g. 1.25, or leave it out"
    );
    assert_eq!(
        message("experts", "1"),
        "experts = 1: a router chooses among at least 2; use 2 or more, or 0 for a perceptron"
    );
    assert!(message("experts_per_token", "5").contains("1..=4"));
    assert!(message("experts", "5000").contains("1..=4096"));
    assert!(message("expert_ffn", "2000000").contains("all 4 experts together have at most 4194304 columns"));
    assert!(message("shared_ffn", "5000000").contains("0..=4194304"));
    assert!(message("capacity", "1e300").starts_with("capacity = 1e300: "), "{}", message("capacity", "1e300"));
    assert!(message("router", "tanh").contains("unknown router 'tanh'; known: softmax, sigmoid"));
    assert!(message("balance", "rank").contains("known: sequence, batch, none"));
    assert!(message("drop", "last").contains("known: choice, score"));
    assert!(message("router_scale", "0").contains("..=10000"));
    assert!(message("balance_loss", "-1").starts_with("balance_loss = -1: it must lie in 0..=10000"));
    assert!(message("router_z_loss", "NaN").contains("0..=10000"));
    assert_eq!(
        message("router_bias_rate", "2"),
        "router_bias_rate = 2: it is added to scores, which lie in 0..=1, and must lie there itself; use e.g. 0.001, or 0 \
         for no biases"
    );
    assert!(message("capacity", "-1").contains("..=10000"));
    assert_eq!(
        message("capacity_group", "3"),
        "capacity_group=3 does not divide seq_len = 8; try capacity_group=2 or 4"
    );
    let single = with(&[("experts_per_token", "1"), ("router_normalize", "true")]).unwrap_err().to_string();
    assert!(single.contains("would always be 1"), "{single}");
    assert!(message("blocks.1.expert_every", "2").contains("unknown field of a block 'expert_every'"));
}

#[test]
fn groups_that_no_token_could_choose_so_are_refused() {
    let of = |groups: &[(&str, &str)]| with(groups);
    let message = |groups: &[(&str, &str)]| of(groups).unwrap_err().to_string();
    let groups = "router_groups";
    let top = "router_top_groups";
    assert_eq!(
        message(&[(groups, "3"), (top, "1")]),
        "router_groups=3 does not divide experts = 4; try router_groups=2 or 4"
    );
    assert!(message(&[(groups, "2")]).starts_with("router_groups = 2: it must be said how many"));
    assert!(
        message(&[(top, "2")])
            .starts_with("router_top_groups = 2: it is said of groups of experts, and there are none")
    );
    for chosen in ["0", "2", "3"] {
        let expected =
            format!("router_top_groups = {chosen}: a token chooses at least 1 of the 2 groups, and not all of them");
        assert!(message(&[(groups, "2"), (top, chosen)]).starts_with(&expected));
    }
    let uneven = message(&[(groups, "4"), (top, "2"), ("experts_per_token", "3")]);
    assert!(uneven.starts_with("router_top_groups = 2: as many of each group count for it"), "{uneven}");
    let few = message(&[(groups, "4"), (top, "1")]);
    assert!(
        few.starts_with(
            "router_top_groups = 1: the groups that a token chooses have 1 experts, fewer than experts_per_token = 2"
        ),
        "{few}"
    );
    for none in [&[(groups, "0")][..], &[(groups, "1"), (top, "0")], &[(top, "0")]] {
        assert_eq!(experts(&of(none).unwrap(), 0).router.groups, None);
    }
    let grouped = of(&[(groups, "2"), (top, "1")]).unwrap();
    assert_eq!(experts(&grouped, 0).router.groups, Some(ExpertGroups { count: 2, chosen: 1 }));
    check_round_trip(&grouped);
}

#[test]
fn a_scope_without_a_loss_has_no_coefficient() {
    let none = with(&[("balance", "none"), ("balance_loss", "0.5")]).unwrap();
    assert_eq!(experts(&none, 0).router.balance_loss, 0.0);
    check_round_trip(&none);
}

#[test]
fn classic_knows_no_experts() {
    for overrides in [&[][..], &[("expert_every", "2")]] {
        let message = with(overrides).unwrap().check_classic("this model").unwrap_err().to_string();
        assert!(message.starts_with("experts = 4: this model knows models of alike blocks"), "{message}");
    }
}

#[test]
fn the_largest_sizes_do_not_overflow() {
    let sizes = [
        ("layers", "8192"),
        ("hidden", "1048576"),
        ("heads", "1048576"),
        ("vocab", "16777216"),
        ("tied_head", "false"),
        ("activation", "swiglu"),
        ("experts", "4096"),
        ("expert_ffn", "1024"),
        ("shared_ffn", "4194304"),
    ];
    let model = with(&sizes).unwrap();
    // Parameter, gradient and two moments in f64.
    assert!(model.parameters().checked_mul(4 * 8).is_some());
}

proptest! {
    #[test]
    fn what_is_accepted_survives_a_round_trip(
        (count, per_token, width, shared) in (0_usize..6, 0_usize..5, 0_usize..9, 0_usize..3),
        (every, first) in (0_usize..5, 0_usize..5),
        (sigmoid, normalize, batch, score) in (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        numbers in prop::array::uniform5(prop_oneof![4 => 0.0..3.0, 1 => any::<f64>()]),
        (group, dense) in (0_usize..9, prop::option::of(0_usize..5)),
        (groups, top) in (0_usize..5, 0_usize..4),
    ) {
        let name = |flag, yes: &str, no: &str| if flag { yes.to_owned() } else { no.to_owned() };
        let [scale, balance_loss, z_loss, bias_rate, capacity] = numbers.map(|number: f64| number.to_string());
        let mut overrides = vec![
            ("experts", count.to_string()),
            ("experts_per_token", per_token.to_string()),
            ("expert_ffn", width.to_string()),
            ("shared_ffn", shared.to_string()),
            ("expert_every", every.to_string()),
            ("expert_first", first.to_string()),
            ("router", name(sigmoid, "sigmoid", "softmax")),
            ("router_groups", groups.to_string()),
            ("router_top_groups", top.to_string()),
            ("router_normalize", normalize.to_string()),
            ("router_scale", scale),
            ("balance", name(batch, "batch", "sequence")),
            ("balance_loss", balance_loss),
            ("router_z_loss", z_loss),
            ("router_bias_rate", bias_rate),
            ("capacity", capacity),
            ("capacity_group", group.to_string()),
            ("drop", name(score, "score", "choice")),
        ];
        overrides.extend(dense.map(|_| ("blocks.1.experts", "0".to_owned())));
        let overrides: Vec<_> = overrides.into_iter().map(|(field, value)| (field.to_owned(), value)).collect();
        if let Ok(model) = Model::from_toml(SMALL, &overrides) {
            let text = toml::to_string(&model).unwrap();
            prop_assert!(model.active_parameters() <= model.parameters());
            prop_assert_eq!(Model::from_toml(&text, &[]).unwrap(), model);
        }
    }
}
