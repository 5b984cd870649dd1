//! Negative controls of properties: a layout that runs another mask, scale, function or optimizer constant than the serial
//! model does not pass.

use quadrille_engine::Hyper;
use quadrille_proofs::{
    assert_caught, edited_at, edited_stage, hyper, llama, mixture_of, model, pass_operations, program_with, prove,
    prove_against,
};
use quadrille_spec::{Activation, Block, Experts, FeedForward, Model, RouterScores};
use quadrille_step::{DropoutSite, Op, Operation, StepProgram, kind};

/// Two microbatches on two ranks of x and of data.
fn program(model: &Model) -> StepProgram {
    program_with(model, "x=2,data=2", 8, |request| request.microbatch = Some(2))
}

fn blocks(model: &Model, change: impl Fn(&mut Block)) -> Model {
    Model { blocks: model.blocks.each(change), ..model.clone() }
}

fn activated_by(block: &mut Block, activation: Activation) {
    if let FeedForward::Dense(perceptron) = &mut block.feed_forward {
        perceptron.activation = activation;
    }
}

fn experts(model: &Model, change: impl Fn(&mut Experts)) -> Model {
    blocks(model, |block| {
        if let FeedForward::Experts(experts) = &mut block.feed_forward {
            change(experts);
        }
    })
}

/// Every property changes numbers alone, not a shape.
#[test]
fn rejects_another_property_of_the_model() {
    let gpt = Model { dropout: 0.3, embedding_scale: 2.0, logit_cap: Some(2.0), ..model(2) };
    let llama = llama(1);
    let mixture = mixture_of(1);
    for model in [&gpt, &llama, &mixture] {
        let report = prove(&program(model), 2).unwrap();
        assert!(report.ok, "{report:?}");
    }
    let twice_the_capacity = |experts: &mut Experts| {
        if let Some(capacity) = &mut experts.capacity {
            capacity.factor *= 2.0;
        }
    };
    let slow_rotation = |block: &mut Block| {
        if let Some(rotary) = &mut block.attention.rotary {
            rotary.base *= 2.0;
        }
    };
    for (change, right, wrong) in [
        ("attention to later tokens", &gpt, blocks(&gpt, |block| block.attention.causal = false)),
        ("a window of two tokens", &gpt, blocks(&gpt, |block| block.attention.window = Some(2))),
        ("scores twice as large", &gpt, blocks(&gpt, |block| block.attention.score_scale *= 2.0)),
        ("capped scores", &gpt, blocks(&gpt, |block| block.attention.cap = Some(0.5))),
        ("another epsilon of norms", &gpt, blocks(&gpt, |block| block.norm.epsilon *= 2.0)),
        ("halved branches", &gpt, blocks(&gpt, |block| block.residual.scale = 0.5)),
        ("another activation", &gpt, blocks(&gpt, |block| activated_by(block, Activation::GeluErf))),
        ("a dropout rate of 0.2", &gpt, Model { dropout: 0.2, ..gpt.clone() }),
        ("embeddings as they are", &gpt, Model { embedding_scale: 1.0, ..gpt.clone() }),
        ("logits as they are", &gpt, Model { logit_cap: None, ..gpt.clone() }),
        ("another rotation", &llama, blocks(&llama, slow_rotation)),
        ("twice the capacity of experts", &mixture, experts(&mixture, twice_the_capacity)),
        (
            "another function of scores",
            &mixture,
            experts(&mixture, |experts| experts.router.scores = RouterScores::Sigmoid),
        ),
        ("weights of experts halved", &mixture, experts(&mixture, |experts| experts.router.scale *= 0.5)),
        ("half the balance loss", &mixture, experts(&mixture, |experts| experts.router.balance_loss *= 0.5)),
        ("half the z loss", &mixture, experts(&mixture, |experts| experts.router.z_loss *= 0.5)),
    ] {
        let report = prove_against(&program(&wrong), &program(right), hyper(Some(0.1)), 1).unwrap();
        assert!(report.ledger_equal && !report.ok, "{change} was not noticed: {report:?}");
    }
}

#[test]
fn rejects_another_constant_of_the_optimizer() {
    let program = program(&model(1));
    let right = hyper(Some(0.1));
    for (change, wrong) in [
        ("the decay of the first moment", Hyper { beta1: 0.8, ..right }),
        ("the decay of the second moment", Hyper { beta2: 0.99, ..right }),
        ("epsilon", Hyper { epsilon: 2.0 * right.epsilon, ..right }),
        ("weight decay", Hyper { weight_decay: 0.0, ..right }),
        ("the largest norm", Hyper { clip: Some(0.2), ..right }),
        ("the norm without clipping", Hyper { clip: None, ..right }),
        ("the learning rate", Hyper { learning_rate: 1.001e-3, ..right }),
        ("the last learning rate", Hyper { final_fraction: 0.2, ..right }),
        ("the warm-up", Hyper { warmup_steps: 4, ..right }),
    ] {
        // The second step has both moments and a learning rate on its way down.
        let report = prove_against(&program, &program, wrong, 2).unwrap();
        assert!(report.ledger_equal && !report.ok, "{change} was not noticed: {report:?}");
    }
}

#[test]
fn rejects_weight_decay_of_biases_and_none_of_matrices() {
    let program = program(&model(1));
    for (index, parameter) in program.stages[0].parameters.iter().enumerate() {
        let broken = edited_stage(&program, 0, |stage| stage.parameters[index].decay = !parameter.decay);
        assert_caught(&broken, 1, &format!("{}: decay is {}", parameter.name, !parameter.decay));
    }
}

/// The dropout site of an operation that has one.
fn site(operation: &mut Operation) -> Option<&mut DropoutSite> {
    match operation {
        Operation::Dropout(kind::Dropout { site, .. }) => Some(site),
        Operation::Attention(kind::Attention { dropout, .. })
        | Operation::AttentionBackward(kind::AttentionBackward { dropout, .. })
        | Operation::Residual(kind::Residual { dropout, .. }) => dropout.as_mut(),
        _ => None,
    }
}

/// Forward and backward operations with the mask of another place.
#[test]
fn rejects_the_dropout_mask_of_another_place() {
    let program = program(&Model { dropout: 0.4, ..model(2) });
    assert!(prove(&program, 1).unwrap().ok);
    let masked = |(_, op): &(_, &Op)| site(&mut { op.operation }).is_some();
    let masked: Vec<_> = pass_operations(&program).into_iter().filter(masked).collect();
    // The embedding, and of each block the probabilities and both branches, forward and backward.
    assert_eq!(masked.len(), 2 * (1 + 2 * 3));
    for (place, op) in masked {
        let broken = edited_at(&program, place, |ops, at| {
            if let Some(site) = site(&mut ops[at].operation) {
                *site = match *site {
                    DropoutSite::Embedding => DropoutSite::Down(0),
                    DropoutSite::Attention(block) => DropoutSite::Attention(1 - block),
                    DropoutSite::Projection(block) => DropoutSite::Down(block),
                    DropoutSite::Down(block) => DropoutSite::Projection(block),
                };
            }
        });
        assert_caught(&broken, 1, &format!("another mask of {} at {place:?}", op.operation.name()));
    }
}
