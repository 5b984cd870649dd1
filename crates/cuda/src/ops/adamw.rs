//! AdamW.

use quadrille_tensor::AdamW;

use crate::array::{Array, Element};
use crate::queue::{Done, Queue};
use crate::words::words;

/// The kernels' `AdamW`.
fn describe(of: &AdamW) -> Vec<u64> {
    let keep = 1.0 - of.learning_rate * of.weight_decay;
    let length = of.learning_rate / of.correction1;
    let root_scale = 1.0 / of.correction2.sqrt();
    words![of.beta1, 1.0 - of.beta1, of.beta2, 1.0 - of.beta2, of.epsilon, keep, length, root_scale]
}

/// What an update on the device holds, `f64`: whether it is applied, and what gradients are multiplied with.
pub fn update_words(applied: bool, gradient_scale: f64) -> [f64; 2] {
    [f64::from(u8::from(applied)), gradient_scale]
}

/// What [`Queue::adamw`] gets of one parameter, in arrays.
#[derive(Debug, Clone, Copy)]
pub struct ParameterArrays {
    /// The constants.
    pub constants: AdamW,
    /// The parameter, its master copy, its gradient, and the running means.
    pub p: Array,
    /// The master copy.
    pub master: Option<Array>,
    /// The gradient.
    pub g: Array,
    /// Running means of the gradient, and of its squares.
    pub moments: [Array; 2],
}

/// Elements that a block updates at once (`UPDATE_UNIT` of `adamw.cu`).
const UPDATE_UNIT: usize = 4096;

/// The table of parameters that [`Queue::adamw_of_all`] reads, in words of 4 bytes, and how many units of work they have.
pub fn update_table(parameters: &[ParameterArrays]) -> (Vec<u32>, usize) {
    let mut words = Vec::new();
    let mut units = 0;
    for ParameterArrays { constants, p, master, g, moments: [m, v] } in parameters {
        let real = p.element.real();
        assert_eq!([g.len, m.len, v.len, master.map_or(p.len, |master| master.len)], [p.len; 4]);
        assert_eq!(
            [g.element.real(), m.element, v.element, master.map_or(p.element, |master| master.element)],
            [real; 4]
        );
        let (of, stored) = master.map_or((*p, None), |master| (master, Some(*p)));
        let is_stored = stored.is_some() && g.element != real;
        assert!(is_stored || g.element == real, "gradients as stored are of parameters with a master copy");
        words.extend([describe(constants), words![of, stored, *g, *m, *v, p.len, is_stored, units]].concat());
        units += p.len.div_ceil(UPDATE_UNIT);
    }
    (words.into_iter().flat_map(|word| [word as u32, (word >> 32) as u32]).collect(), units)
}

impl Queue<'_> {
    /// [`adamw`](Self::adamw) of several parameters by one kernel, to the same bits: of the `count` that a table has, of
    /// [`update_table`]; values are stored as `stored`.
    pub fn adamw_of_all(&self, stored: Element, table: Array, count: usize, units: usize, update: Array) -> Done {
        assert_eq!((update.len, update.element), (2, Element::F64));
        self.each_by_block("adamw_of_all", stored.format(), units, 0, &words![table, count, units, update])
    }

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
