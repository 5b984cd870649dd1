//! Kernels on operands of their own, and copies between the host and the device.

use quadrille_tensor::{AdamW, AttentionShape, ContextPart, Curve, ProductShape, Shape, Transpose};

use super::operands::{Operand, Repeated, is_narrow};
use super::{Prepared, Sweep};
use crate::EngineError;
use crate::backend::{Backend, Kind, UpdateRule};
use crate::state::samples::OwnSamples;

type Done = Result<(), EngineError>;
type Ready<'b> = Result<Box<dyn Prepared + 'b>, EngineError>;

/// Columns of a row of element-wise work.
const COLS: usize = 64;

/// A product of shape `[m, n, k]`.
pub fn product<B: Backend>(backend: &B, layout: Transpose, [m, n, k]: [usize; 3]) -> Ready<'_> {
    let shape = ProductShape { stored: layout, m, n, k };
    backend.prepare_matmuls(&[(shape, layout)])?;
    let operand = |elements| Operand::numbers(backend, Kind::Stored, elements);
    let operands = [operand(m * k)?, operand(k * n)?, Operand::zeros(backend, Kind::Stored, m * n)?];
    let once = move |backend: &B, [a, b, c]: &mut [Operand<B>; 3]| {
        backend.matmul(shape, layout, a.read(), b.read(), &mut c.write(), false)
    };
    Ok(Box::new(Repeated { backend, operands, result: 2, once }))
}

/// Causal attention of one sequence: `[sequence, width of a head, heads]`, forward or backward.
pub fn attention<B: Backend>(backend: &B, backward: bool, [seq_len, head_dim, heads]: [usize; 3]) -> Ready<'_> {
    let shape = AttentionShape {
        sequences: 1,
        seq_len,
        context: ContextPart::WHOLE,
        heads,
        kv_heads: heads,
        head_dim,
        value_dim: head_dim,
        causal: true,
        window: None,
        scale: 1.0,
        cap: None,
    };
    let outputs = seq_len * heads * head_dim;
    let forward = move |backend: &B, [qkv, out, log_sum_exp, ..]: &mut [Operand<B>; 5]| {
        backend.attention_forward(shape, qkv.read(), None, &mut out.write(), &mut log_sum_exp.write(), None)
    };
    let gradient = move |backend: &B, [qkv, out, log_sum_exp, dout, dqkv]: &mut [Operand<B>; 5]| {
        let out = out.read();
        let log_sum_exp = log_sum_exp.read();
        let dout = dout.read();
        backend.attention_backward(shape, qkv.read(), None, out, log_sum_exp, dout, &mut dqkv.write(), None)
    };
    let mut operands = [
        Operand::numbers(backend, Kind::Stored, 3 * outputs)?,
        Operand::zeros(backend, Kind::Stored, outputs)?,
        Operand::zeros(backend, Kind::Real, seq_len * heads)?,
        Operand::numbers(backend, Kind::Stored, outputs)?,
        Operand::zeros(backend, Kind::Stored, 3 * outputs)?,
    ];
    if backward {
        forward(backend, &mut operands)?;
        return Ok(Box::new(Repeated { backend, operands, result: 4, once: gradient }));
    }
    Ok(Box::new(Repeated { backend, operands, result: 1, once: forward }))
}

/// Element-wise work on so many elements. Numbers stay or grow, to infinity if it is repeated often: none becomes so small that
/// arithmetic slows down.
pub fn sweep<B: Backend>(backend: &B, sweep: Sweep, elements: usize) -> Ready<'_> {
    let shape = Shape { rows: elements / COLS, cols: COLS };
    let elements = shape.rows * COLS;
    let numbers = |kind| Operand::numbers(backend, kind, elements);
    match sweep {
        Sweep::Residual => {
            let operands = [numbers(Kind::Stored)?, numbers(Kind::Stored)?];
            let once = move |backend: &B, [x, residual]: &mut [Operand<B>; 2]| {
                backend.residual_forward(shape, &mut x.write(), None, residual.read(), None)
            };
            Ok(Box::new(Repeated { backend, operands, result: 0, once }))
        }
        Sweep::BiasGelu => {
            let bias = Operand::zeros(backend, Kind::Real, COLS)?;
            let operands = [numbers(Kind::Stored)?, bias, Operand::zeros(backend, Kind::Stored, elements)?];
            let once = move |backend: &B, [pre, bias, y]: &mut [Operand<B>; 3]| {
                backend.bias_curve_forward(Curve::Gelu, shape, &mut pre.write(), Some(bias.read()), &mut y.write())
            };
            Ok(Box::new(Repeated { backend, operands, result: 2, once }))
        }
        Sweep::GeluBackward => {
            // Where its slope is above 1.
            let ones = || Operand::all(backend, Kind::Stored, elements, 1.0);
            let operands = [ones()?, ones()?];
            let once = move |backend: &B, [pre, dy]: &mut [Operand<B>; 2]| {
                backend.bias_curve_backward(Curve::Gelu, shape, pre.read(), &mut dy.write(), None, false)
            };
            Ok(Box::new(Repeated { backend, operands, result: 1, once }))
        }
        Sweep::AdamW => update(backend, elements),
    }
}

/// The update of a parameter, with a master copy where it is narrow.
fn update<B: Backend>(backend: &B, elements: usize) -> Ready<'_> {
    apply_updates(backend)?;
    let real = || Operand::numbers(backend, Kind::Real, elements);
    // The parameter or its master, the gradient and the moments.
    let operands = [
        real()?,
        Operand::zeros(backend, Kind::Real, elements)?,
        real()?,
        Operand::all(backend, Kind::Real, elements, 1.0)?,
    ];
    if is_narrow::<B>() {
        let mut rounded = Operand::zeros(backend, Kind::Stored, elements)?;
        let once = move |backend: &B, [master, g, m, v]: &mut [Operand<B>; 4]| {
            let mut p = rounded.write();
            let mut master = master.write();
            backend.adamw(&CONSTANTS, &mut p, Some(&mut master), g.read(), &mut m.write(), &mut v.write())
        };
        return Ok(Box::new(Repeated { backend, operands, result: 0, once }));
    }
    let once = move |backend: &B, [p, g, m, v]: &mut [Operand<B>; 4]| {
        backend.adamw(&CONSTANTS, &mut p.write(), None, g.read(), &mut m.write(), &mut v.write())
    };
    Ok(Box::new(Repeated { backend, operands, result: 0, once }))
}

/// No state grows, and none becomes so small that arithmetic slows down: nothing decays.
const CONSTANTS: AdamW = AdamW {
    learning_rate: 1e-3,
    beta1: 1.0,
    beta2: 1.0,
    epsilon: 1e-8,
    weight_decay: 0.0,
    correction1: 1.0,
    correction2: 1.0,
};

/// Updates are applied as they are from now on: the totals are those of one target and some loss.
fn apply_updates<B: Backend>(backend: &B) -> Done {
    backend.begin_step()?;
    let mut samples = B::Samples::default();
    let one_token = OwnSamples { tokens: [vec![0], vec![0]], ..OwnSamples::default() };
    backend.load_samples(&mut { one_token }, &mut samples)?;
    // The row's sum of exponentials and its target's logit.
    let sums = Operand::all(backend, Kind::Real, 2, 1.0)?;
    backend.cross_entropy_loss(&samples, 0..1, sums.read())?;
    backend.prepare_attempt(&UpdateRule {
        targets_per_step: 1,
        loss_scale: 1.0,
        clip: None,
        loss_limit: f64::INFINITY,
    })?;
    backend.settle()
}

/// Bytes to the device and back.
pub fn host_copy<B: Backend>(backend: &B, bytes: usize) -> Ready<'_> {
    let elements = bytes / size_of::<B::Real>();
    let bytes = elements * size_of::<B::Real>();
    let operands = [Operand::numbers(backend, Kind::Real, elements)?];
    // Others than there are, and touched.
    let mut host = vec![1; bytes];
    let once = move |_: &B, [operand]: &mut [Operand<B>; 1]| {
        B::fill(operand.buffer_mut(), bytes, |to| to.copy_from_slice(&host));
        B::look(operand.buffer(), bytes, |from| host.copy_from_slice(from));
        Ok(())
    };
    Ok(Box::new(Repeated { backend, operands, result: 0, once }))
}
