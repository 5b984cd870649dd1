//! A mixture of experts in the place of a perceptron: `y = sum over the kept choices of w_j down(activation(up(x)))`, each by
//! the matrices of the expert that was chosen, and a shared perceptron for all rows. A dropped choice adds nothing, and the
//! weights of the others stay.

use quadrille_spec::{Activation, Experts};

use crate::pass::{Pass, accumulate, sum};
use crate::router::{Routed, Rows};
use crate::{Tensors, functions, linear};

/// What the backward pass needs again.
pub(crate) struct Saved {
    pub(crate) routed: Routed,
    /// What each choice gives its row before it is weighted, `[n, k, h]`; 0 where it was dropped.
    given: Vec<f64>,
    shared: Option<Shared>,
}

struct Shared {
    up: Vec<f64>,
    activated: Vec<f64>,
}

/// `y[n, h]` of block `i` from `x[n, h]`.
pub(crate) fn forward(pass: &Pass, i: usize, experts: &Experts, x: &[f64]) -> (Vec<f64>, Saved) {
    let h = pass.model.hidden;
    let k = experts.per_token;
    // The bias of a router is not one of its logits.
    let logits = linear::forward(pass.batch.rows(), x, pass.parameter(&router_weight(i)), None);
    let forced = pass.decisions.map(|decisions| decisions.blocks[&i].as_slice());
    let bias = experts.router.has_bias().then(|| pass.parameter(&router_bias(i)));
    let routed = Routed::new(experts, rows(pass), &pass.batch.present(), logits, bias, forced);

    let mut given = vec![0.0; routed.ids.len() * h];
    for e in 0..experts.count {
        let choices = choices_of(&routed, e);
        let expert = Expert::new(pass, i, experts, e);
        let result = expert.forward(&gathered(&choices, k, x, h)).down;
        for (choice, result) in choices.iter().zip(result.chunks(h)) {
            given[choice * h..][..h].copy_from_slice(result);
        }
    }
    let mut y = vec![0.0; x.len()];
    for (choice, given) in given.chunks(h).enumerate() {
        for c in 0..h {
            y[choice / k * h + c] += routed.weights[choice] * given[c];
        }
    }

    let shared = experts.shared.map(|shared| {
        let up = pass.linear(&format!("block.{i}.shared.up"), x);
        Shared { activated: functions::activate(shared.activation, &up), up }
    });
    if let Some(shared) = &shared {
        y = sum(&y, &pass.linear(&format!("block.{i}.shared.down"), &shared.activated));
    }
    (y, Saved { routed, given, shared })
}

/// `dx[n, h]` of block `i` from `dy[n, h]` and the forward's `x`; the parameters' gradients are added to `gradients`, with
/// those of the router's losses; for the bias of a router the loads of its experts, by which it is moved.
pub(crate) fn backward(
    pass: &Pass,
    i: usize,
    experts: &Experts,
    dy: &[f64],
    x: &[f64],
    saved: &Saved,
    gradients: &mut Tensors,
) -> Vec<f64> {
    let h = pass.model.hidden;
    let k = experts.per_token;
    let routed = &saved.routed;
    let mut dx = vec![0.0; x.len()];
    for e in 0..experts.count {
        let choices = choices_of(routed, e);
        let mut dgiven = gathered(&choices, k, dy, h);
        for (choice, d) in choices.iter().zip(dgiven.chunks_mut(h)) {
            d.iter_mut().for_each(|d| *d *= routed.weights[*choice]);
        }
        let expert = Expert::new(pass, i, experts, e);
        let d = expert.backward(&dgiven, &gathered(&choices, k, x, h), gradients);
        for (choice, d) in choices.iter().zip(d.chunks(h)) {
            (0..h).for_each(|c| dx[choice / k * h + c] += d[c]);
        }
    }

    if let (Some(described), Some(Shared { up, activated })) = (experts.shared, &saved.shared) {
        let dactivated = pass.linear_backward(&format!("block.{i}.shared.down"), dy, activated, gradients);
        let dup = functions::activate_backward(described.activation, &dactivated, up);
        dx = sum(&dx, &pass.linear_backward(&format!("block.{i}.shared.up"), &dup, x, gradients));
    }

    // Dropped choices gave nothing, so that their weights have no gradient.
    let dot = |choice: usize| (0..h).map(|c| dy[choice / k * h + c] * saved.given[choice * h + c]).sum();
    let dweights: Vec<f64> = (0..routed.ids.len()).map(dot).collect();
    let dlogits = routed.backward(experts, rows(pass), &dweights);
    if experts.router.has_bias() {
        accumulate(gradients, &router_bias(i), &routed.loads(experts));
    }
    let d = linear::backward(pass.batch.rows(), &dlogits, x, pass.parameter(&router_weight(i)));
    accumulate(gradients, &router_weight(i), &d.weight);
    sum(&dx, &d.x)
}

fn router_weight(i: usize) -> String {
    format!("block.{i}.router.weight")
}

/// The name of what is added to the scores by which experts are chosen.
fn router_bias(i: usize) -> String {
    format!("block.{i}.router.bias")
}

/// The batch of a pass as its routers see it.
pub(crate) fn rows(pass: &Pass) -> Rows {
    Rows { sequences: pass.batch.sequences, seq_len: pass.batch.seq_len, drops: pass.drops }
}

/// The kept choices of expert `e`, by their indices in `[n, k]`, ascending.
fn choices_of(routed: &Routed, e: usize) -> Vec<usize> {
    (0..routed.ids.len()).filter(|choice| routed.ids[*choice] as usize == e && routed.kept[*choice]).collect()
}

/// The rows of `x[n, h]` that choices are of.
fn gathered(choices: &[usize], k: usize, x: &[f64], h: usize) -> Vec<f64> {
    choices.iter().flat_map(|choice| &x[choice / k * h..][..h]).copied().collect()
}

/// One expert: blocks of rows of the matrices of all.
struct Expert<'a> {
    activation: Activation,
    h: usize,
    /// The matrix's name, where in it the expert's block begins, and the block.
    up: (String, usize, &'a [f64]),
    down: (String, usize, &'a [f64]),
}

/// What an expert makes of its rows.
struct Made {
    up: Vec<f64>,
    activated: Vec<f64>,
    down: Vec<f64>,
}

impl<'a> Expert<'a> {
    fn new(pass: &'a Pass, i: usize, experts: &Experts, e: usize) -> Self {
        let block = |name: String| {
            let all = pass.parameter(&name);
            let length = all.len() / experts.count;
            (name, e * length, &all[e * length..][..length])
        };
        Self {
            activation: experts.expert.activation,
            h: pass.model.hidden,
            up: block(format!("block.{i}.experts.up.weight")),
            down: block(format!("block.{i}.experts.down.weight")),
        }
    }

    /// Of rows `x[m, h]`, `m` at least 0.
    fn forward(&self, x: &[f64]) -> Made {
        let m = x.len() / self.h;
        if m == 0 {
            return Made { up: Vec::new(), activated: Vec::new(), down: Vec::new() };
        }
        let up = linear::forward(m, x, self.up.2, None);
        let activated = functions::activate(self.activation, &up);
        let down = linear::forward(m, &activated, self.down.2, None);
        Made { up, activated, down }
    }

    /// `dx[m, h]` from `dy[m, h]`.
    fn backward(&self, dy: &[f64], x: &[f64], gradients: &mut Tensors) -> Vec<f64> {
        let m = x.len() / self.h;
        if m == 0 {
            return Vec::new();
        }
        let Made { up, activated, .. } = self.forward(x);
        let down = linear::backward(m, dy, &activated, self.down.2);
        let dup = functions::activate_backward(self.activation, &down.x, &up);
        let up = linear::backward(m, &dup, x, self.up.2);
        for ((name, at, _), gradient) in [(&self.down, &down.weight), (&self.up, &up.weight)] {
            let before = vec![0.0; *at];
            accumulate(gradients, name, &[before.as_slice(), gradient].concat());
        }
        up.x
    }
}
