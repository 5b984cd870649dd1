//! The engine's descriptions as kernels take them.

use quadrille_engine as engine;
use quadrille_spec::Dropout;

use super::{DeviceView, DeviceViewMut};
use crate::array::Array;
use crate::ops::{AttentionMask, Draw, ElementMask, Gamma, ParameterArrays, Positions, Rows, Statistics};

fn draw(dropout: &Dropout) -> Draw {
    Draw { key: dropout.key(), threshold: dropout.threshold(), scale: dropout.scale }
}

fn rows(rows: engine::Rows) -> Rows {
    let engine::Rows { first_sequence, first, part, seq_len } = rows;
    Rows { first_sequence, first, part, seq_len }
}

/// Positions whose starts, if there are some, lie on the device.
pub fn positions(at: engine::Positions<'_>, starts: Option<Array>) -> Positions {
    Positions { rows: rows(at.rows), starts, capacity: at.capacity }
}

pub fn element_mask(mask: &engine::ElementMask) -> ElementMask {
    let engine::ElementMask { dropout, rows: of_rows, first_col, cols } = mask;
    ElementMask { draw: draw(dropout), rows: rows(*of_rows), first_col: *first_col, cols: *cols }
}

pub fn attention_mask(mask: &engine::AttentionMask) -> AttentionMask {
    let engine::AttentionMask { dropout, first_sequence, first_head, heads, seq_len } = mask;
    AttentionMask {
        draw: draw(dropout),
        first_sequence: *first_sequence,
        first_head: *first_head,
        heads: *heads,
        seq_len: *seq_len,
    }
}

pub fn gamma(gamma: engine::Gamma<DeviceView<'_>>) -> Gamma {
    Gamma { stored: gamma.stored.array, offset: gamma.offset }
}

pub fn statistics(of: engine::Statistics<DeviceView<'_>>) -> Statistics {
    Statistics { sums: of.sums.map(|sums| sums.array), squares: of.squares.array }
}

/// The update of a parameter.
pub fn update(of: &engine::ParameterUpdate<DeviceView<'_>, DeviceViewMut<'_>>) -> ParameterArrays {
    let engine::ParameterUpdate { constants, p, master, g, moments: [m, v] } = of;
    let master = master.as_ref().map(|master| master.array);
    ParameterArrays { constants: *constants, p: p.array, master, g: g.array, moments: [m.array, v.array] }
}

/// The array of a view that may not be there.
pub fn read(view: Option<DeviceView<'_>>) -> Option<Array> {
    view.map(|view| view.array)
}

/// The same of one to be written.
pub fn written(view: Option<&mut DeviceViewMut<'_>>) -> Option<Array> {
    view.map(|view| view.array)
}
