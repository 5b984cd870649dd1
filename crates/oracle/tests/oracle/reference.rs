//! The oracle against other programs: GPT-2 in JAX (`reference.py` printed `reference.txt`), and all families in plain
//! Python with its own differentiation (`families.py` printed `families.txt`).

use quadrille_oracle::{Batch, DropoutSeed, Samples, Tensors, objective, parameter_shapes};
use quadrille_spec::{
    Activation, BalanceScope, Blocks, Capacity, DropOrder, Experts, FeedForward, IGNORED, Latent, Model, Norm, PADDING,
    Perceptron, Positions, Router, RouterScores,
};

/// `reference.py`'s starting values.
fn initial(model: &Model) -> Tensors {
    let tensor = |(k, (name, [rows, columns])): (usize, (String, [usize; 2]))| {
        let centre = if name.ends_with("gamma") { 1.0 } else { 0.0 };
        let value = |e| centre + 0.4 * (0.37 * (k as f64 + 1.0) * (e as f64 + 1.0) + k as f64).sin();
        (name, (0..rows * columns).map(value).collect())
    };
    parameter_shapes(model).into_iter().enumerate().map(tensor).collect()
}

/// Compares the loss and every gradient's weighted sum with the case's lines in a program's `output`.
fn check(output: &str, case: &str, model: &Model, dropout: Option<DropoutSeed>) {
    check_padded(output, case, model, dropout, [5; 3], None);
}

/// [`check`] with sequences of these lengths, padded to 5 tokens; targets are ignored whose position, divided by 4, leaves `ignored`.
fn check_padded(
    output: &str,
    case: &str,
    model: &Model,
    dropout: Option<DropoutSeed>,
    lengths: [usize; 3],
    ignored: Option<usize>,
) {
    let sequences = 3;
    let seq_len = 5;
    let v = model.vocab as u32;
    let values = model.patch_values.unwrap_or(0) as u32;
    let inputs: Vec<f64> = (0..15 * values).map(|i| (0.7 * f64::from(i)).sin()).collect();
    let outputs: Vec<f64> = (0..15 * values).map(|i| (1.3 * f64::from(i)).cos()).collect();
    let mut tokens: Vec<u32> = (0..15).map(|i| (7 * i * i + 3) % v.max(1)).collect();
    let mut targets: Vec<u32> = (0..15).map(|i| (5 * i + 1) % v.max(1)).collect();
    for at in 0..15 {
        let is_padding = at % seq_len >= lengths[at / seq_len];
        if is_padding {
            tokens[at] = PADDING;
        }
        if is_padding || Some(at % 4) == ignored {
            targets[at] = IGNORED;
        }
    }
    let samples = match model.patch_values {
        None => Samples::Tokens { inputs: &tokens, targets: &targets },
        Some(_) => Samples::Patches { inputs: &inputs, targets: &outputs },
    };
    let batch = Batch { samples, sequences, seq_len };
    let result = objective(model, &initial(model), &batch, dropout, None);

    let is_case = |text: &&str| text.starts_with(&format!("{case} "));
    let text = output.split("case ").find(is_case).unwrap();
    let lines: Vec<_> = text.lines().skip(1).map(|line| line.split_once(' ').unwrap()).collect();
    let losses = if result.choices > 0 { 4 } else { 1 };
    assert_eq!(lines.len(), losses + result.gradients.len(), "each loss and each parameter has a line");
    for (name, expected) in lines {
        let expected: f64 = expected.parse().unwrap();
        let weighted = |g: &Vec<f64>| g.iter().enumerate().map(|(e, g)| g * (e as f64).cos()).sum();
        let value: f64 = match name {
            "loss" => result.loss,
            "balance" => result.balance,
            "router_z" => result.router_z,
            "dropped" => result.dropped as f64,
            _ => weighted(&result.gradients[name]),
        };
        assert!((value - expected).abs() < 1e-13 * expected.abs().max(1.0), "{name}: {value:e} is not {expected:e}");
    }
}

fn gpt() -> Model {
    Model::gpt(2, 12, 3, 13, 7).reshaped(|m| {
        m.ffn = 10;
        m.biases = false;
    })
}

fn llama() -> Model {
    gpt().reshaped(|m| {
        m.hidden = 16;
        m.heads = 4;
        m.kv_heads = 2;
        m.tied_head = false;
        m.norm = Norm::Rms;
        m.positions = Positions::Rotary;
        m.rotary_base = 50.0;
        m.activation = Activation::Swiglu;
    })
}

const JAX: &str = include_str!("reference.txt");
const PYTHON: &str = include_str!("families.txt");

#[test]
fn tied_without_biases() {
    check(JAX, "tied", &gpt(), None);
    check(PYTHON, "gpt", &gpt(), None);
}

#[test]
fn untied_with_biases_and_dropout() {
    let model = gpt().reshaped(|m| {
        m.tied_head = false;
        m.biases = true;
        m.dropout = 0.25;
    });
    check(JAX, "untied", &model, Some(DropoutSeed { seed: 42, step: 7 }));
}

#[test]
fn llama_of_tokens() {
    check(PYTHON, "llama", &llama(), None);
}

/// The model with experts in every so many blocks: those of `families.py` with a change.
fn mixture(model: &Model, every: usize, change: impl Fn(&mut Experts)) -> Model {
    let block = |place: usize| {
        let mut block = model.blocks[place];
        if (place + 1).is_multiple_of(every) {
            let mut experts = mixture_of(*block.feed_forward.dense().unwrap());
            change(&mut experts);
            block.feed_forward = FeedForward::Experts(experts);
        }
        block
    };
    Model { blocks: Blocks::new(block(0), (1..model.layers()).map(block)), ..model.clone() }
}

fn mixture_of(expert: Perceptron) -> Experts {
    Experts {
        count: 4,
        per_token: 2,
        expert,
        shared: None,
        router: Router {
            scores: RouterScores::Softmax,
            groups: None,
            normalize: true,
            scale: 1.0,
            balance: BalanceScope::Sequence,
            balance_loss: 0.5,
            z_loss: 0.1,
            bias_rate: 0.0,
        },
        capacity: Some(Capacity { factor: 0.9, group: None, drop: DropOrder::Choice }),
    }
}

#[test]
fn mixtures_of_experts() {
    check(PYTHON, "moe", &mixture(&llama(), 1, |_| {}), None);
    let sigmoid = mixture(&gpt(), 2, |experts| {
        (experts.count, experts.per_token) = (5, 3);
        experts.shared = Some(Perceptron { width: 4, ..experts.expert });
        experts.router.scores = RouterScores::Sigmoid;
        experts.router.scale = 2.5;
        experts.router.balance = BalanceScope::Batch;
        experts.capacity = Some(Capacity { factor: 0.5, group: Some(5), drop: DropOrder::Score });
    });
    check(PYTHON, "sigmoid", &sigmoid, None);
    let plain = mixture(&llama(), 1, |experts| {
        experts.per_token = 1;
        experts.router = Router {
            scores: RouterScores::Sigmoid,
            normalize: false,
            balance_loss: 0.2,
            z_loss: 0.0,
            ..experts.router
        };
        experts.capacity = experts.capacity.map(|capacity| Capacity { factor: 1.3, ..capacity });
    });
    check(PYTHON, "plain", &plain, None);
}

/// The program computes sequences of their own lengths, which have no padding.
#[test]
fn padded_mixtures_of_experts() {
    check_padded(PYTHON, "padded", &mixture(&llama(), 1, |_| {}), None, [5, 2, 4], Some(1));
    let of_batch = mixture(&gpt(), 1, |experts| {
        experts.count = 5;
        experts.per_token = 3;
        experts.router.scores = RouterScores::Sigmoid;
        experts.router.balance = BalanceScope::Batch;
        experts.capacity = Some(Capacity { factor: 0.5, group: Some(5), drop: DropOrder::Score });
    });
    check_padded(PYTHON, "padded_batch", &of_batch, None, [1, 4, 3], Some(3));
}

/// The model with latent attention in heads of so many columns of keys and of values; what all heads share turns, if
/// positions turn.
fn narrowed(model: &Model, [head_dim, value_dim]: [usize; 2], latent: Latent) -> Model {
    let model = model.reshaped(|m| {
        m.kv_heads = m.heads;
        m.norm_epsilon = 0.1;
    });
    let blocks = model.blocks.each(|block| {
        let attention = &mut block.attention;
        (attention.head_dim, attention.value_dim, attention.latent) = (head_dim, value_dim, Some(latent));
        if let Some(rotary) = &mut attention.rotary {
            rotary.columns = latent.shared_key;
        }
    });
    Model { blocks, ..model }
}

#[test]
fn latent_attention() {
    let latent = Latent { queries: Some(5), keys_values: 6, shared_key: 4 };
    check(PYTHON, "latent", &narrowed(&llama(), [7, 5], latent), None);
    let latent = Latent { queries: None, keys_values: 7, shared_key: 2 };
    check(PYTHON, "latent_keys", &narrowed(&gpt(), [5, 6], latent), None);
}

#[test]
fn vision_transformer() {
    let patches = gpt().reshaped(|m| {
        m.vocab = 0;
        m.patch_values = Some(6);
        m.tied_head = false;
    });
    check(
        PYTHON,
        "vit",
        &patches.reshaped(|m| {
            m.biases = true;
            m.causal = false;
        }),
        None,
    );
}

#[test]
fn mixed_families() {
    let tokens = gpt().reshaped(|m| {
        m.kv_heads = 1;
        m.biases = true;
        m.causal = false;
    });
    let tokens = tokens.reshaped(|m| {
        m.norm = Norm::Rms;
        m.norm_epsilon = 0.1;
        m.activation = Activation::Swiglu;
    });
    check(PYTHON, "tokens", &tokens, None);
    let patches = llama().reshaped(|m| {
        m.vocab = 0;
        m.patch_values = Some(3);
        m.kv_heads = 1;
        m.biases = true;
    });
    check(
        PYTHON,
        "patches",
        &patches.reshaped(|m| {
            m.norm = Norm::Layer;
            m.activation = Activation::Gelu;
        }),
        None,
    );
}
