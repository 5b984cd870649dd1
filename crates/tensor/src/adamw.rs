//! AdamW (Loshchilov and Hutter 2019): Adam with decoupled weight decay, in one pass.

use crate::dispatch::vectorised;
use crate::element::Element;
use crate::pool::Pool;

/// The constants of one update of one group of parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AdamW {
    /// Step size.
    pub learning_rate: f64,
    /// Decay of the gradient's running mean.
    pub beta1: f64,
    /// Decay of the squared gradient's running mean.
    pub beta2: f64,
    /// Added to the root, against division by zero.
    pub epsilon: f64,
    /// Decoupled decay per unit of learning rate; 0 for biases and norms.
    pub weight_decay: f64,
    /// 1 - beta1^t, for step t counted from 1.
    pub correction1: f64,
    /// 1 - beta2^t.
    pub correction2: f64,
}

/// Updates the parameters `p` and both running means `m`, `v` from the gradient `g`, which is first multiplied by
/// `gradient_scale`, as clipping asks for:
///
/// ```text
/// g' = gradient_scale g
/// m  = beta1 m + (1 - beta1) g'
/// v  = beta2 v + (1 - beta2) g'^2
/// p -= learning_rate (m / correction1 / (sqrt(v / correction2) + epsilon) + weight_decay p)
/// ```
pub fn adamw<T: Element>(
    pool: &Pool,
    constants: &AdamW,
    gradient_scale: f64,
    p: &mut [T],
    g: &[T],
    m: &mut [T],
    v: &mut [T],
) {
    assert_eq!((g.len(), m.len(), v.len()), (p.len(), p.len(), p.len()));
    let piece = pool.piece(p.len());
    let states = m.chunks_mut(piece).zip(v.chunks_mut(piece));
    let pieces = p.chunks_mut(piece).zip(g.chunks(piece)).zip(states);
    pool.each(pieces, |((p, g), (m, v))| {
        vectorised(
            #[inline(always)]
            || update(constants, gradient_scale, p, g, m, v),
        );
    });
}

#[inline(always)]
fn update<T: Element>(constants: &AdamW, gradient_scale: f64, p: &mut [T], g: &[T], m: &mut [T], v: &mut [T]) {
    let beta1 = T::from_f64(constants.beta1);
    let rest1 = T::from_f64(1.0 - constants.beta1);
    let beta2 = T::from_f64(constants.beta2);
    let rest2 = T::from_f64(1.0 - constants.beta2);
    let epsilon = T::from_f64(constants.epsilon);
    let gradient_scale = T::from_f64(gradient_scale);
    let keep = T::from_f64(1.0 - constants.learning_rate * constants.weight_decay);
    let step = T::from_f64(constants.learning_rate / constants.correction1);
    let root_scale = T::from_f64(1.0 / constants.correction2.sqrt());
    for (((p, g), m), v) in p.iter_mut().zip(g).zip(m.iter_mut()).zip(v.iter_mut()) {
        let g = *g * gradient_scale;
        *m = beta1.mul_add(*m, rest1 * g);
        *v = beta2.mul_add(*v, rest2 * g * g);
        let root = v.sqrt().mul_add(root_scale, epsilon);
        *p = keep.mul_add(*p, -(step * *m / root));
    }
}
