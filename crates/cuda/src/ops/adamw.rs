//! AdamW.

use quadrille_tensor::AdamW;

use crate::array::{Array, Element};
use crate::queue::{Done, Queue};
use crate::words::words;

/// The kernels' `AdamW`.
fn describe(of: &AdamW) -> Vec<u64> {
    let (keep, length) = (1.0 - of.learning_rate * of.weight_decay, of.learning_rate / of.correction1);
    let root_scale = 1.0 / of.correction2.sqrt();
    words![of.beta1, 1.0 - of.beta1, of.beta2, 1.0 - of.beta2, of.epsilon, keep, length, root_scale]
}

/// What an update on the device holds, `f64`: whether it is applied, and what gradients are multiplied with.
pub fn update_words(applied: bool, gradient_scale: f64) -> [f64; 2] {
    [f64::from(u8::from(applied)), gradient_scale]
}

impl Queue<'_> {
    /// See [`quadrille_tensor::adamw`], with a master copy [`quadrille_tensor::adamw_master`]: with the scale, and only if, the
    /// `update` says so, of [`update_words`].
    pub fn adamw(
        &self,
        constants: &AdamW,
        update: Array,
        p: Array,
        master: Option<Array>,
        g: Array,
        m: Array,
        v: Array,
    ) -> Done {
        let real = p.element.real();
        assert_eq!((update.len, update.element), (2, Element::F64));
        assert_eq!([g.len, m.len, v.len], [p.len; 3]);
        assert_eq!([g.element.real(), m.element, v.element], [real; 3]);
        let Some(master) = master else {
            assert_eq!((p.element, g.element), (real, real), "rounded parameters have a master copy");
            let words = [describe(constants), words![update, p, g, m, v, p.len]].concat();
            return self.each("adamw", real.format(), p.len, &words);
        };
        assert_eq!((master.len, master.element), (p.len, real));
        let kernel = if g.element == real { "adamw_master" } else { "adamw_master_stored" };
        let words = [describe(constants), words![update, master, p, g, m, v, p.len]].concat();
        self.each(kernel, p.element.format(), p.len, &words)
    }
}
