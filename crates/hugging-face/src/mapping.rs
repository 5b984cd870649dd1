//! Which tensors of the library a logical tensor is made of, and where their numbers lie in it.

use std::ops::Range;

use quadrille_spec::{Model, ModelParameter};

use crate::Family;
use crate::columns::Columns;
use crate::family::Names;

/// A logical tensor of a model and the tensors of the library that hold its numbers, each number once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// The name in the table at [`Model`].
    pub name: String,
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub cols: usize,
    /// What it is made of.
    pub parts: Vec<Part>,
}

/// A tensor of the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name there.
    pub name: String,
    /// Its shape there.
    pub shape: Vec<usize>,
    /// Whether its rows are columns here.
    pub transposed: bool,
    /// Which columns of the logical tensor it holds.
    pub columns: Columns,
}

impl Part {
    /// Rows and columns in the library; a vector is one row.
    pub fn matrix(&self) -> [usize; 2] {
        match self.shape[..] {
            [rows, cols] => [rows, cols],
            _ => [1, self.shape.iter().product()],
        }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Puts `block`, these rows of the library's tensor, into the logical tensor `ours` with `cols` columns; `columns`
    /// are those of [`Columns::numbers`].
    pub(crate) fn put<T: Copy>(&self, columns: &[usize], rows: Range<usize>, block: &[T], cols: usize, ours: &mut [T]) {
        self.each(columns, rows, cols, |there, here| ours[here] = block[there]);
    }

    /// The inverse of [`Part::put`].
    pub(crate) fn take<T: Copy>(
        &self,
        columns: &[usize],
        rows: Range<usize>,
        ours: &[T],
        cols: usize,
        block: &mut [T],
    ) {
        self.each(columns, rows, cols, |there, here| block[there] = ours[here]);
    }

    /// Every element of some of the library's rows: its place in them, and in the logical tensor.
    fn each(&self, columns: &[usize], rows: Range<usize>, cols: usize, mut element: impl FnMut(usize, usize)) {
        let width = self.matrix()[1];
        if self.transposed {
            // The inner loop goes over the logical tensor's columns: neighbours there, in few rows of the block.
            let columns = &columns[rows];
            for row in 0..width {
                for (i, column) in columns.iter().enumerate() {
                    element(i * width + row, row * cols + column);
                }
            }
        } else {
            for (i, row) in rows.enumerate() {
                for (j, column) in columns.iter().enumerate() {
                    element(i * width + j, row * cols + column);
                }
            }
        }
    }
}

/// All tensors of a model of tokens, in the order of the table at [`Model`]; `prefix`: names begin as those of a model
/// with a head. A tied head has no tensor of its own.
pub fn tensors(model: &Model, family: Family, prefix: bool) -> Vec<Tensor> {
    let names = family.names();
    let prefix = if prefix { names.prefix } else { "" };
    let tensor = |parameter: ModelParameter| {
        let parts = parts(model, names, prefix, &parameter);
        Tensor { name: parameter.name(), rows: parameter.rows, cols: parameter.cols, parts }
    };
    model.all_parameters().map(tensor).collect()
}

/// The name of the head's weight in the library.
pub(crate) fn head_name(family: Family) -> String {
    format!("{}.weight", family.names().head)
}

/// What a parameter is made of.
fn parts(model: &Model, names: &Names, prefix: &str, parameter: &ModelParameter) -> Vec<Part> {
    let ModelParameter { block, layer, part, rows, cols, .. } = *parameter;
    let before = match block {
        Some(block) => format!("{prefix}{}{block}.", names.blocks),
        None if layer == "head" => String::new(),
        None => prefix.to_owned(),
    };
    let whole = |name| vec![(name, Columns::All)];
    let theirs = match (layer, part) {
        ("embedding", "positions") => whole(names.positions),
        ("embedding", _) => whole(names.table),
        ("norm1", _) => whole(names.norm1),
        ("qkv", _) => names.qkv.to_vec(),
        ("projection", _) => whole(names.projection),
        ("norm2", _) => whole(names.norm2),
        ("up", _) => names.up.to_vec(),
        ("down", _) => whole(names.down),
        ("final_norm", _) => whole(names.final_norm),
        _ => whole(names.head),
    };
    let end = if matches!(part, "bias" | "beta") { "bias" } else { "weight" };
    let is_vector = matches!(part, "gamma" | "beta" | "bias");
    // Tables and the head are rows of tokens in both.
    let transposed = names.transposed && block.is_some() && part == "weight";
    let part = |(name, columns): (&str, Columns)| {
        let width = columns.count(model, cols);
        let shape = match transposed {
            _ if is_vector => vec![width],
            true => vec![width, rows],
            false => vec![rows, width],
        };
        Part { name: format!("{before}{name}.{end}"), shape, transposed, columns }
    };
    theirs.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{Activation, Norm, Positions};

    use super::*;

    /// Two groups of two heads of two numbers.
    fn grouped() -> Model {
        Model::gpt(1, 8, 4, 5, 6).reshaped(|m| {
            m.kv_heads = 2;
            m.tied_head = false;
            m.biases = false;
            m.norm = Norm::Rms;
            m.positions = Positions::Rotary;
            m.activation = Activation::Swiglu;
            m.ffn = 3;
        })
    }

    #[test]
    fn columns_are_counted_by_hand() {
        let model = grouped();
        let numbers = |columns: Columns| columns.numbers(&model, 16);
        assert_eq!(numbers(Columns::Queries), [0, 1, 2, 3, 8, 9, 10, 11]);
        assert_eq!(numbers(Columns::Keys), [4, 5, 12, 13]);
        assert_eq!(numbers(Columns::Values), [6, 7, 14, 15]);
        assert_eq!(numbers(Columns::QueriesKeysValues), [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]);
        assert_eq!(Columns::Gates.numbers(&model, 6), [0, 2, 4]);
        assert_eq!(Columns::Ups.numbers(&model, 6), [1, 3, 5]);
    }

    #[test]
    fn parts_hold_every_element_once() {
        for (model, family) in [
            (grouped(), Family::Llama),
            (Model::gpt(2, 12, 3, 7, 5), Family::Gpt2),
            (
                Model::gpt(2, 12, 3, 7, 5).reshaped(|m| {
                    m.tied_head = false;
                    m.positions = Positions::Rotary;
                }),
                Family::GptNeox,
            ),
        ] {
            let tensors = tensors(&model, family, true);
            let elements: usize = tensors.iter().map(|tensor| tensor.rows * tensor.cols).sum();
            assert_eq!(elements as u64, model.parameters(), "{family}");
            for tensor in tensors {
                let mut times = vec![0; tensor.rows * tensor.cols];
                for part in &tensor.parts {
                    let columns = part.columns.numbers(&model, tensor.cols);
                    let rows = part.matrix()[0];
                    let mut seen = vec![0; part.elements()];
                    part.each(&columns, 0..rows, tensor.cols, |there, here| {
                        seen[there] += 1;
                        times[here] += 1;
                    });
                    assert!(seen.iter().all(|times| *times == 1), "{}", part.name);
                }
                assert!(times.iter().all(|times| *times == 1), "{}", tensor.name);
            }
        }
    }

    #[test]
    fn taking_is_the_inverse_of_putting_in_blocks_of_rows() {
        let model = grouped();
        for tensor in tensors(&model, Family::Llama, false) {
            let before: Vec<usize> = (100..100 + tensor.rows * tensor.cols).collect();
            let mut after = vec![0; before.len()];
            for part in &tensor.parts {
                let columns = part.columns.numbers(&model, tensor.cols);
                let [rows, width] = part.matrix();
                for first in (0..rows).step_by(3) {
                    let rows = first..rows.min(first + 3);
                    let mut block = vec![0; rows.len() * width];
                    part.take(&columns, rows.clone(), &before, tensor.cols, &mut block);
                    part.put(&columns, rows, &block, tensor.cols, &mut after);
                }
            }
            assert_eq!(before, after, "{}", tensor.name);
        }
    }

    #[test]
    fn names_are_those_of_the_library() {
        let names: Vec<String> = tensors(&grouped(), Family::Llama, true)
            .into_iter()
            .flat_map(|tensor| tensor.parts.into_iter().map(|part| format!("{} {:?}", part.name, part.shape)))
            .collect();
        assert_eq!(
            names,
            [
                "model.embed_tokens.weight [5, 8]",
                "model.layers.0.input_layernorm.weight [8]",
                "model.layers.0.self_attn.q_proj.weight [8, 8]",
                "model.layers.0.self_attn.k_proj.weight [4, 8]",
                "model.layers.0.self_attn.v_proj.weight [4, 8]",
                "model.layers.0.self_attn.o_proj.weight [8, 8]",
                "model.layers.0.post_attention_layernorm.weight [8]",
                "model.layers.0.mlp.gate_proj.weight [3, 8]",
                "model.layers.0.mlp.up_proj.weight [3, 8]",
                "model.layers.0.mlp.down_proj.weight [8, 3]",
                "model.norm.weight [8]",
                "lm_head.weight [5, 8]",
            ]
        );
        let first = &tensors(&Model::gpt(1, 8, 2, 5, 6), Family::Gpt2, false)[0].parts[0];
        assert_eq!(first.name, "wte.weight");
    }
}
