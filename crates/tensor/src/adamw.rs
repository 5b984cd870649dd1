//! AdamW (Loshchilov and Hutter 2019): Adam with decoupled weight decay, in one pass.

use crate::dispatch::vectorised;
use crate::element::Element;
use crate::pool::Pool;
use crate::stored::Stored;

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
    let step = Step::new(constants, gradient_scale);
    pool.each(pieces, |((p, g), (m, v))| {
        vectorised(
            #[inline(always)]
            || {
                for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
                    *p = step.updated(*p, *g, m, v);
                }
            },
        );
    });
}

/// [`adamw`] of parameters whose copy in full precision is `master`: `stored` becomes the master, rounded, in the same
/// pass.
pub fn adamw_master<S: Stored, G: Stored<Real = S::Real>>(
    pool: &Pool,
    constants: &AdamW,
    gradient_scale: f64,
    master: &mut [S::Real],
    stored: &mut [S],
    g: &[G],
    m: &mut [S::Real],
    v: &mut [S::Real],
) {
    let len = master.len();
    assert_eq!((stored.len(), g.len(), m.len(), v.len()), (len, len, len, len));
    let piece = pool.piece(len);
    let states = m.chunks_mut(piece).zip(v.chunks_mut(piece));
    let pieces = master.chunks_mut(piece).zip(stored.chunks_mut(piece)).zip(g.chunks(piece)).zip(states);
    let step = Step::new(constants, gradient_scale);
    pool.each(pieces, |(((master, stored), g), (m, v))| {
        vectorised(
            #[inline(always)]
            || {
                for ((((p, stored), g), m), v) in master.iter_mut().zip(stored).zip(g).zip(m).zip(v) {
                    *p = step.updated(*p, g.widen(), m, v);
                    *stored = S::rounded(*p);
                }
            },
        );
    });
}

/// The constants as kernels need them.
#[derive(Clone, Copy)]
struct Step<T> {
    beta1: T,
    rest1: T,
    beta2: T,
    rest2: T,
    epsilon: T,
    gradient_scale: T,
    /// What is left of a parameter after decay.
    keep: T,
    length: T,
    root_scale: T,
}

impl<T: Element> Step<T> {
    fn new(constants: &AdamW, gradient_scale: f64) -> Self {
        Step {
            beta1: T::from_f64(constants.beta1),
            rest1: T::from_f64(1.0 - constants.beta1),
            beta2: T::from_f64(constants.beta2),
            rest2: T::from_f64(1.0 - constants.beta2),
            epsilon: T::from_f64(constants.epsilon),
            gradient_scale: T::from_f64(gradient_scale),
            keep: T::from_f64(1.0 - constants.learning_rate * constants.weight_decay),
            length: T::from_f64(constants.learning_rate / constants.correction1),
            root_scale: T::from_f64(1.0 / constants.correction2.sqrt()),
        }
    }

    /// The parameter after the step; its running means are updated.
    #[inline(always)]
    fn updated(self, p: T, g: T, m: &mut T, v: &mut T) -> T {
        let g = g * self.gradient_scale;
        *m = self.beta1.mul_add(*m, self.rest1 * g);
        *v = self.beta2.mul_add(*v, self.rest2 * g * g);
        let root = v.sqrt().mul_add(self.root_scale, self.epsilon);
        self.keep.mul_add(p, -(self.length * *m / root))
    }
}
