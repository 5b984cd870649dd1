//! Every field of a block against its price: what changes the work changes seconds, bytes or FLOPs, all else changes nothing and
//! has a reason. A struct's fields are all named, so that a new one is no program until it has its line here.

use quadrille_cost::native::{Framework, Price, Problem};
use quadrille_spec::{
    Activation, Attention, BalanceScope, Block, Capacity, Cluster, DropOrder, ExpertGroups, Experts, FeedForward,
    Latent, Layout, LayoutRequest, Model, Norm, NormPlace, Normalization, NormedOver, Perceptron, QueryKeyNorm,
    Residual, ResidualOrder, Rotary, RotaryScaling, Router, RouterScores,
};

/// What a field does to a price.
enum Effect {
    /// Changes it: this change of the field does.
    Priced(fn(&mut Block)),
    /// Changes nothing, for this reason.
    Free(&'static str, fn(&mut Block)),
    /// Is a struct, whose fields have lines of their own.
    Inside,
}

use Effect::{Free, Inside, Priced};

const FACTOR: &str = "a factor within a kernel that is there without it";
const ANGLES: &str = "other angles, as many of them";
const CHOICE: &str = "other choices among as many experts, whose kernel is priced by the scores that it reads";
const WEIGHTS: &str = "other gradients of scores, by the same kernel";

/// The effects of all fields of a struct: a field without an effect does not compile.
macro_rules! effects {
    ($value:expr, $kind:ident { $($field:ident: $effect:expr),+ $(,)? }) => {{
        let $kind { $($field: _),+ } = $value;
        vec![$((concat!(stringify!($kind), ".", stringify!($field)), $effect)),+]
    }};
}

fn latent(block: &mut Block) -> &mut Latent {
    block.attention.latent.as_mut().unwrap()
}

fn rotary(block: &mut Block) -> &mut Rotary {
    block.attention.rotary.as_mut().unwrap()
}

fn qk_norm(block: &mut Block) -> &mut QueryKeyNorm {
    block.attention.qk_norm.as_mut().unwrap()
}

fn perceptron(block: &mut Block) -> &mut Perceptron {
    match &mut block.feed_forward {
        FeedForward::Dense(perceptron) => perceptron,
        FeedForward::Experts(experts) => &mut experts.expert,
    }
}

fn experts(block: &mut Block) -> &mut Experts {
    let FeedForward::Experts(experts) = &mut block.feed_forward else { panic!("a perceptron") };
    experts
}

fn capacity(block: &mut Block) -> &mut Capacity {
    experts(block).capacity.as_mut().unwrap()
}

fn groups(block: &mut Block) -> &mut ExpertGroups {
    experts(block).router.groups.as_mut().unwrap()
}

/// Blocks that have all parts, two of which no block has together.
struct Usual {
    plain: Block,
    latent: Block,
    mixture: Block,
    grouped: Block,
}

impl Usual {
    fn new() -> Self {
        let gpt = Model::gpt(1, 64, 8, 128, 64);
        let Block { attention, norm, .. } = *gpt.blocks.first();
        let rule = Normalization { kind: Norm::Rms, ..norm };
        let perceptron = Perceptron { width: 96, activation: Activation::Silu, up_bias: false, down_bias: false };
        let plain = Block {
            attention: Attention {
                head_dim: 16,
                value_dim: 16,
                rotary: Some(Rotary { base: 1e4, columns: 8, scaling: RotaryScaling::None }),
                qk_norm: Some(QueryKeyNorm { rule, over: NormedOver::Head }),
                ..attention
            },
            feed_forward: FeedForward::Dense(perceptron),
            ..*gpt.blocks.first()
        };
        let latent = Latent { queries: Some(24), keys_values: 24, shared_key: 8 };
        let attention =
            Attention { latent: Some(latent), qk_norm: None, qkv_bias: false, causal: true, ..plain.attention };
        let router = Router {
            scores: RouterScores::Softmax,
            groups: None,
            normalize: false,
            scale: 1.0,
            balance: BalanceScope::Batch,
            balance_loss: 0.01,
            z_loss: 0.0,
            bias_rate: 0.0,
        };
        let capacity = Some(Capacity { factor: 1.0, group: None, drop: DropOrder::Choice });
        let of_block = Experts { count: 8, per_token: 2, expert: perceptron, shared: None, router, capacity };
        let mixture = Block { feed_forward: FeedForward::Experts(of_block), ..plain };
        let mut grouped = mixture;
        let of = experts(&mut grouped);
        (of.router.groups, of.shared) = (Some(ExpertGroups { count: 4, chosen: 2 }), Some(perceptron));
        Self { plain, latent: Block { attention, ..plain }, mixture, grouped }
    }
}

/// Fields of a block with their effects, and the block that has them.
fn fields() -> Vec<(Block, Vec<(&'static str, Effect)>)> {
    let Usual { plain, latent: narrow, mixture, grouped } = Usual::new();
    let mut known = vec![(
        plain,
        effects!(
            plain,
            Block {
                attention: Inside,
                feed_forward: Inside,
                norm: Inside,
                norm_place: Priced(|it| it.norm_place = NormPlace::Both),
                residual: Inside,
            }
        ),
    )];
    known.push((
        plain,
        effects!(
            plain.attention,
            Attention {
                heads: Priced(|it| (it.attention.heads, it.attention.kv_heads) = (16, 8)),
                kv_heads: Priced(|it| it.attention.kv_heads = 4),
                head_dim: Priced(|it| it.attention.head_dim = 32),
                value_dim: Priced(|it| it.attention.value_dim = 32),
                latent: Priced(|it| *it = Usual::new().latent),
                causal: Priced(|it| it.attention.causal = false),
                window: Priced(|it| it.attention.window = Some(24)),
                score_scale: Free(FACTOR, |it| it.attention.score_scale = 0.5),
                cap: Free("a function of each score in the registers of the kernel, whose products count", |it| {
                    it.attention.cap = Some(30.0);
                }),
                rotary: Priced(|it| it.attention.rotary = None),
                qk_norm: Priced(|it| it.attention.qk_norm = None),
                qkv_bias: Priced(|it| it.attention.qkv_bias = !it.attention.qkv_bias),
                projection_bias: Priced(|it| it.attention.projection_bias = !it.attention.projection_bias),
            }
        ),
    ));
    known.push((
        narrow,
        effects!(
            narrow.attention.latent.unwrap(),
            Latent {
                queries: Priced(|it| latent(it).queries = None),
                keys_values: Priced(|it| latent(it).keys_values = 32),
                shared_key: Priced(|it| latent(it).shared_key = 4),
            }
        ),
    ));
    known.push((
        plain,
        effects!(
            plain.attention.qk_norm.unwrap(),
            QueryKeyNorm { rule: Inside, over: Priced(|it| qk_norm(it).over = NormedOver::AllHeads) }
        ),
    ));
    known.push((
        plain,
        effects!(
            plain.attention.qk_norm.unwrap().rule,
            Normalization {
                kind: Priced(|it| qk_norm(it).rule.kind = Norm::Layer),
                epsilon: Free(FACTOR, |it| qk_norm(it).rule.epsilon = 1e-3),
                offset: Free(FACTOR, |it| qk_norm(it).rule.offset ^= true),
            }
        ),
    ));
    known.push((
        plain,
        effects!(
            plain.attention.rotary.unwrap(),
            Rotary {
                base: Free(ANGLES, |it| rotary(it).base = 77.0),
                columns: Free("a kernel reads and writes queries and keys whole, whatever of them turns", |it| {
                    rotary(it).columns = 16;
                }),
                scaling: Free(ANGLES, |it| rotary(it).scaling = RotaryScaling::Linear { factor: 2.0 }),
            }
        ),
    ));
    known.push((
        plain,
        effects!(
            plain.norm,
            Normalization {
                kind: Priced(|it| it.norm.kind = Norm::Rms),
                epsilon: Free(FACTOR, |it| it.norm.epsilon = 1e-3),
                offset: Free(FACTOR, |it| it.norm.offset ^= true),
            }
        ),
    ));
    known.push((
        plain,
        effects!(
            plain.residual,
            Residual {
                order: Priced(|it| it.residual.order = ResidualOrder::Parallel),
                scale: Priced(|it| it.residual.scale = 0.5),
            }
        ),
    ));
    let FeedForward::Dense(dense) = plain.feed_forward else { panic!("experts") };
    for block in [plain, mixture] {
        known.push((
            block,
            effects!(
                dense,
                Perceptron {
                    width: Priced(|it| perceptron(it).width = 128),
                    activation: Priced(|it| perceptron(it).activation = Activation::Swiglu),
                    up_bias: Inside,
                    down_bias: Inside,
                }
            ),
        ));
    }
    // Experts have no biases.
    known.push((
        plain,
        effects!(
            dense,
            Perceptron {
                width: Inside,
                activation: Inside,
                up_bias: Priced(|it| perceptron(it).up_bias = true),
                down_bias: Priced(|it| perceptron(it).down_bias = true),
            }
        ),
    ));
    let FeedForward::Experts(of_grouped) = grouped.feed_forward else { panic!("a perceptron") };
    let FeedForward::Experts(of_mixture) = mixture.feed_forward else { panic!("a perceptron") };
    known.push((
        mixture,
        effects!(
            of_mixture,
            Experts {
                count: Priced(|it| experts(it).count = 16),
                per_token: Priced(|it| experts(it).per_token = 4),
                expert: Inside,
                shared: Priced(|it| experts(it).shared = Some(experts(it).expert)),
                router: Inside,
                capacity: Priced(|it| experts(it).capacity = None),
            }
        ),
    ));
    known.push((
        mixture,
        effects!(
            of_mixture.router,
            Router {
                scores: Free(FACTOR, |it| experts(it).router.scores = RouterScores::Sigmoid),
                groups: Free(CHOICE, |it| experts(it).router.groups = Some(ExpertGroups { count: 4, chosen: 2 })),
                normalize: Free(FACTOR, |it| experts(it).router.normalize ^= true),
                scale: Free(FACTOR, |it| experts(it).router.scale = 2.5),
                balance: Priced(|it| experts(it).router.balance = BalanceScope::None),
                balance_loss: Free(WEIGHTS, |it| experts(it).router.balance_loss = 0.1),
                z_loss: Free(WEIGHTS, |it| experts(it).router.z_loss = 1e-3),
                bias_rate: Priced(|it| experts(it).router.bias_rate = 1e-3),
            }
        ),
    ));
    known.push((
        grouped,
        effects!(
            of_grouped.router.groups.unwrap(),
            ExpertGroups {
                count: Free(CHOICE, |it| (groups(it).count, groups(it).chosen) = (8, 2)),
                chosen: Free(CHOICE, |it| groups(it).chosen = 1),
            }
        ),
    ));
    known.push((
        mixture,
        effects!(
            of_mixture.capacity.unwrap(),
            Capacity {
                factor: Priced(|it| capacity(it).factor = 2.0),
                group: Priced(|it| capacity(it).group = Some(2)),
                drop: Free(CHOICE, |it| capacity(it).drop = DropOrder::Score),
            }
        ),
    ));
    known
}

/// Seconds, bytes and FLOPs of a step of two such blocks.
fn price(block: Block, framework: Framework) -> Price {
    let usual = Model::gpt(2, 64, 8, 128, 64);
    let model = Model { blocks: usual.blocks.each(|it| *it = block), ..usual };
    let request = LayoutRequest::new("x=2,data=2".parse().unwrap(), 8);
    let layout = Layout::new(&model, &request).unwrap();
    let cluster = Cluster::preset("selene").unwrap();
    Problem::new(&model, &cluster, framework, 8, 64).unwrap().price_layout(&layout).unwrap()
}

#[test]
fn every_field_of_a_block_is_priced_or_has_a_reason() {
    let mut failed = Vec::new();
    for framework in [Framework::QUADRILLE, Framework::MEGATRON] {
        let price = |block| price(block, framework);
        for (block, effects) in fields() {
            let before = price(block);
            for (field, effect) in effects {
                let (change, reason) = match effect {
                    Priced(change) => (change, None),
                    Free(reason, change) => (change, Some(reason)),
                    Inside => continue,
                };
                let mut changed = block;
                change(&mut changed);
                assert_ne!(changed, block, "{field}");
                let after = price(changed);
                let message = format!("{}, {field}: {before:?} then {after:?}", framework.name);
                match reason {
                    None => failed.extend((after == before).then_some(message)),
                    Some(reason) => failed.extend((after != before).then(|| format!("{message}; not {reason}"))),
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
