//! Properties of mixtures of experts that hold whatever the numbers are.

use quadrille_oracle::{
    AdamW, Decisions, Objective, State, Tensors, initial, logits, margins, mean_loss, mean_loss_with, objective,
    parameter_shapes, update,
};
use quadrille_spec::{IGNORED, Initial, Model};

use crate::small::{Sample, largest, moe, parameters};

fn of(model: &Model, weights: &Tensors, sample: &Sample, decisions: Option<&Decisions>) -> Objective {
    objective(model, weights, &sample.batch(), None, decisions)
}

#[test]
fn a_shape_for_every_parameter() {
    for overrides in [&[][..], &[("shared_ffn", "3"), ("activation", "swiglu")], &[("expert_every", "2")]] {
        let model = moe(overrides);
        let ours = parameter_shapes(&model);
        let theirs: Vec<_> = model.all_parameters().map(|it| (it.name(), [it.rows, it.cols])).collect();
        assert_eq!(ours, theirs);
    }
}

#[test]
fn starting_values_and_decay_are_those_of_the_table() {
    let overrides = [("shared_ffn".to_owned(), "64".to_owned()), ("layers".to_owned(), "2".to_owned())];
    let model = Model::from_toml(Model::preset_text("moe-demo").unwrap(), &overrides).unwrap();
    let before = initial(&model, 3, false);
    let mut after = before.clone();
    let gradients: Tensors = before.iter().map(|(name, tensor)| (name.clone(), vec![0.0; tensor.len()])).collect();
    let decay =
        AdamW { learning_rate: 1.0, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.5, clip: Some(1.0) };
    update(&model, &decay, &mut State::new(&model), &mut after, &gradients);
    for parameter in model.all_parameters() {
        let name = parameter.name();
        let tensor = &before[&parameter.name()];
        if let Initial::Normal(deviation) = parameter.initial {
            let spread = (tensor.iter().map(|w| w * w).sum::<f64>() / tensor.len() as f64).sqrt();
            assert!((spread / deviation - 1.0).abs() < 0.1, "{name}: {spread}");
        }
        assert_eq!(after[&name] != *tensor, parameter.decay, "{name}");
    }
}

#[test]
fn with_as_many_places_as_tokens_nothing_is_dropped() {
    let [few, many, more] = ["0.7", "2", "100"].map(|capacity| moe(&[("capacity", capacity)]));
    let weights = parameters(&few, 1);
    let sample = Sample::new(&few, 3, 6, 1);
    let [few, many, more] = [few, many, more].map(|model| of(&model, &weights, &sample, None));
    assert!(few.dropped > 0 && few.choices == 2 * 3 * 6 * 2, "{} of {}", few.dropped, few.choices);
    assert_eq!((many.dropped, &many), (0, &more));
    let unlimited = logits(&moe(&[]), &weights, &sample.batch());
    assert_eq!(unlimited, logits(&moe(&[("capacity", "2")]), &weights, &sample.batch()));
}

#[test]
fn tied_experts_are_chosen_by_their_numbers() {
    let model = moe(&[]);
    let mut weights = parameters(&model, 1);
    for block in 0..2 {
        weights.get_mut(&format!("block.{block}.router.weight")).unwrap().fill(0.0);
    }
    let sample = Sample::new(&model, 2, 6, 1);
    let tied = of(&model, &weights, &sample, None);
    assert!(tied.decisions.blocks.values().all(|ids| ids.chunks(2).all(|ids| ids == [0, 1])));
    // Two experts have places for 3 of 6 tokens; each of 4 has a quarter of the score, and f is 2, 2, 0, 0.
    assert_eq!(tied.dropped, 2 * 2 * 2 * (6 - 3));
    assert!((tied.balance - 2.0 * 0.01).abs() < 1e-15, "{}", tied.balance);
    let clear = margins(&model, &weights, &sample.batch(), None, &tied.decisions);
    assert!(clear.values().all(|margin| (margin.choice, margin.order, margin.largest) == (0.0, 0.0, 0.25)));
}

/// By hand, of the library's loss of two blocks: each of 4 experts has the probability 1/4, experts 0 and 1 are chosen by all
/// tokens, so that the coefficient is multiplied by 4 (1 * 1/4 + 1 * 1/4 + 0 + 0) = 2 = k.
#[test]
fn a_coefficient_of_the_library_weighs_as_much_here() {
    let text = r#"{"model_type": "mixtral", "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": 11, "max_position_embeddings": 6, "intermediate_size": 8,
        "num_local_experts": 4, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.03}"#;
    let model = Model::from_hugging_face(text, &[]).unwrap();
    let mut weights = parameters(&model, 1);
    for block in 0..2 {
        weights.get_mut(&format!("block.{block}.router.weight")).unwrap().fill(0.0);
    }
    let found = of(&model, &weights, &Sample::new(&model, 3, 6, 1), None);
    assert!(found.decisions.blocks.values().all(|ids| ids.chunks(2).all(|ids| ids == [0, 1])));
    assert!((found.balance - 0.03 * 2.0).abs() < 1e-15, "{}", found.balance);
}

#[test]
fn biases_choose_and_do_not_weigh_and_follow_the_loads() {
    let model = moe(&[("router_bias_rate", "0.125"), ("capacity", "2")]);
    let mut weights = parameters(&model, 1);
    for block in 0..2 {
        weights.get_mut(&format!("block.{block}.router.weight")).unwrap().fill(0.0);
        weights.insert(format!("block.{block}.router.bias"), vec![0.0, 0.5, -0.5, 0.75]);
    }
    let sample = Sample::new(&model, 2, 6, 1);
    let biased = of(&model, &weights, &sample, None);
    assert!(biased.decisions.blocks.values().all(|ids| ids.chunks(2).all(|ids| ids == [3, 1])));
    let clear = margins(&model, &weights, &sample.batch(), None, &biased.decisions);
    assert!(clear.values().all(|margin| (margin.choice, margin.order, margin.largest) == (0.5, 0.25, 1.0)));

    // Without biases the same decisions give the same.
    let plain = moe(&[("capacity", "2")]);
    let mut without = weights.clone();
    without.retain(|name, _| !name.ends_with("router.bias"));
    let forced = of(&plain, &without, &sample, Some(&biased.decisions));
    assert_eq!((biased.loss, biased.balance), (forced.loss, forced.balance));
    assert!(forced.gradients.iter().all(|(name, gradient)| biased.gradients[name] == *gradient));

    // All of the 12 tokens have chosen the two; their mean load is 6.
    for block in 0..2 {
        assert_eq!(biased.gradients[&format!("block.{block}.router.bias")], [0.0, 12.0, 0.0, 12.0]);
    }
    let settings =
        AdamW { learning_rate: 0.1, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.5, clip: Some(0.1) };
    let norm = update(&model, &settings, &mut State::new(&model), &mut weights, &biased.gradients);
    let other = update(&plain, &settings, &mut State::new(&plain), &mut without, &forced.gradients);
    assert_eq!(norm, other);
    for block in 0..2 {
        assert_eq!(weights.remove(&format!("block.{block}.router.bias")).unwrap(), [0.125, 0.375, -0.375, 0.625]);
    }
    assert_eq!(weights, without);
}

#[test]
fn equal_experts_are_one_perceptron() {
    // Where nothing is dropped, normalized weights add up to 1.
    let model = moe(&[("capacity", "2"), ("up_bias", "false"), ("down_bias", "false"), ("balance", "none")]);
    let dense = moe_without(&model);
    let mut weights = parameters(&model, 1);
    let mut alone = weights.clone();
    alone.retain(|name, _| !name.contains("experts") && !name.contains("router"));
    for block in 0..2 {
        for part in ["up", "down"] {
            let all = weights.get_mut(&format!("block.{block}.experts.{part}.weight")).unwrap();
            let one = all[..all.len() / 4].to_vec();
            *all = one.repeat(4);
            alone.insert(format!("block.{block}.{part}.weight"), one);
        }
    }
    let sample = Sample::new(&model, 2, 6, 1);
    let mixture = of(&model, &weights, &sample, None);
    let perceptron = of(&dense, &alone, &sample, None);
    assert!((mixture.loss - perceptron.loss).abs() < 1e-13);
    assert!(largest(&mixture.gradients["block.1.router.weight"]) < 1e-14);
    let of_experts = &mixture.gradients["block.0.experts.up.weight"];
    let one = &perceptron.gradients["block.0.up.weight"];
    let summed = (0..one.len()).map(|at| of_experts.iter().skip(at).step_by(one.len()).sum::<f64>() - one[at]);
    assert!(largest(&summed.collect::<Vec<_>>()) < 1e-13);
}

/// The model with a perceptron without biases in the place of experts.
fn moe_without(model: &Model) -> Model {
    let blocks = model.blocks.each(|block| {
        let expert = block.feed_forward.experts().unwrap().expert;
        block.feed_forward = quadrille_spec::FeedForward::Dense(expert);
    });
    Model { blocks, ..model.clone() }
}

#[test]
fn by_first_choice_a_token_does_not_see_later_ones() {
    // What the second block's router reads has passed the first block's places.
    let seen = |drop: &str, at: usize| {
        let model = moe(&[("experts_per_token", "1"), ("capacity", "0.5"), ("drop", drop)]);
        let weights = parameters(&model, 1);
        let sample = Sample::new(&model, 1, 6, 1);
        let mut other = sample.clone();
        other.tokens[at] = (other.tokens[at] + 1) % 11;
        let before = |sample: &Sample| loss_before(&model, &weights, sample, at);
        before(&sample) != before(&other)
    };
    assert!((1..6).all(|at| !seen("choice", at)));
    assert!((1..6).any(|at| seen("score", at)));
}

/// What the model loses at the tokens before `at`, where experts drop.
fn loss_before(model: &Model, weights: &Tensors, sample: &Sample, at: usize) -> f64 {
    let mut sample = sample.clone();
    sample.targets[at..].fill(IGNORED);
    of(model, weights, &sample, None).loss
}

#[test]
fn foreign_decisions_are_followed_and_judged() {
    let model = moe(&[("drop", "score")]);
    let weights = parameters(&model, 1);
    let sample = Sample::new(&model, 2, 6, 1);
    let own = of(&model, &weights, &sample, None);
    assert_eq!(of(&model, &weights, &sample, Some(&own.decisions)), own);
    let judged = |decisions: &Decisions| margins(&model, &weights, &sample.batch(), None, decisions);
    let margin = judged(&own.decisions);
    assert_eq!(margin.keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert!(margin.values().all(|it| it.choice > 0.0 && it.order > 0.0 && it.drop > 0.0 && it.drop < 1.0));

    // Token 2 takes the two experts that it would not choose in block 0; token 3 its own in the other order.
    let mut foreign = own.decisions.clone();
    let ids = foreign.blocks.get_mut(&0).unwrap();
    let others: Vec<u32> = (0..4).filter(|id| !ids[4..6].contains(id)).collect();
    ids[4..6].copy_from_slice(&others);
    ids.swap(6, 7);
    let followed = of(&model, &weights, &sample, Some(&foreign));
    assert_ne!(followed.loss, own.loss);
    assert_eq!(followed.decisions, foreign);
    assert_eq!(own.decisions.differing(&foreign, &model), 2);
    let margin = judged(&foreign);
    assert!(margin[&0].choice < 0.0 && margin[&0].order < 0.0 && margin[&1].largest > 0.0, "{margin:?}");
    let loss = |decisions| mean_loss_with(&model, &weights, [(sample.batch(), decisions)].into_iter());
    assert_eq!(loss(&own.decisions), mean_loss(&model, &weights, [sample.batch()].into_iter()));
    assert_eq!(loss(&foreign).0, followed.loss);
}

#[test]
#[should_panic(expected = "decisions of block 1, 2 for each token")]
fn decisions_of_another_batch_are_refused() {
    let model = moe(&[]);
    let weights = parameters(&model, 1);
    let sample = Sample::new(&model, 2, 6, 1);
    let mut decisions = of(&model, &weights, &sample, None).decisions;
    decisions.blocks.get_mut(&1).unwrap().pop();
    of(&model, &weights, &sample, Some(&decisions));
}

#[test]
fn losses_of_a_router_by_hand() {
    // Logits are 0 everywhere: every share is 1/4, ln 4 is the logarithm of the sum of exponentials.
    let model = moe(&[("router_z_loss", "0.5"), ("router", "sigmoid"), ("balance_loss", "2")]);
    let mut weights = parameters(&model, 1);
    (0..2).for_each(|block| weights.get_mut(&format!("block.{block}.router.weight")).unwrap().fill(0.0));
    let mut sample = Sample::new(&model, 2, 6, 1);
    let whole = of(&model, &weights, &sample, None);
    assert!((whole.balance - 2.0 * 2.0).abs() < 1e-14 && (whole.router_z - 4_f64.ln().powi(2)).abs() < 1e-14);
    assert!((whole.value - (whole.loss + whole.balance + whole.router_z)).abs() < 1e-14);
    // Which targets count changes nothing of the losses of all tokens, nor of what they add.
    sample.targets[3..].fill(IGNORED);
    let part = of(&model, &weights, &sample, None);
    assert_eq!((part.balance, part.router_z), (whole.balance, whole.router_z));
    assert!((part.value - (part.loss + part.balance + part.router_z)).abs() < 1e-13);
}
