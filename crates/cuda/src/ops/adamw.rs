//! AdamW.

use quadrille_tensor::AdamW;

use super::indices::fields;
use crate::array::{Array, Element};
use crate::driver::Driver;
use crate::queue::{Done, Queue};
use crate::words::{Argument, words};

fields! {
    AdamW: learning_rate beta1 beta2 epsilon weight_decay correction1 correction2;
}

/// What an update on the device holds, `f64`: whether it is applied, and what gradients are multiplied with.
pub fn update_words(applied: bool, gradient_scale: f64) -> [f64; 2] {
    [f64::from(u8::from(applied)), gradient_scale]
}

impl<D: Driver> Queue<'_, D> {
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
            return self.each("adamw", real.format(), p.len, &words![*constants, update, p, g, m, v, p.len]);
        };
        assert_eq!((master.len, master.element), (p.len, real));
        let kernel = if g.element == real { "adamw_master" } else { "adamw_master_stored" };
        self.each(kernel, p.element.format(), p.len, &words![*constants, update, master, p, g, m, v, p.len])
    }
}
