//! Which tensors of the library a logical tensor is made of, and where their numbers lie in it.

use std::ops::Range;

use quadrille_spec::{Model, ModelParameter};

use crate::Family;
use crate::columns::Columns;
use crate::family::{ExpertNames, Names};

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

/// A tensor of the library, or a matrix of several that a tensor holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name there.
    pub name: String,
    /// The tensor's shape there: of one with a matrix for every expert `[experts, rows, columns]`.
    pub shape: Vec<usize>,
    /// Whether its rows are columns here.
    pub transposed: bool,
    /// Which columns of the logical tensor it holds.
    pub columns: Columns,
    /// The expert that it is of, by number: which of equal blocks of rows of the logical tensor it holds; else 0.
    pub expert: usize,
}

impl Part {
    /// Rows and columns in the library; a vector is one row.
    pub fn matrix(&self) -> [usize; 2] {
        match self.shape[..] {
            [rows, cols] | [_, rows, cols] => [rows, cols],
            _ => [1, self.shape.iter().product()],
        }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.matrix().iter().product()
    }

    /// How many elements of the library's tensor stand before it.
    pub(crate) fn start(&self) -> usize {
        if self.shape.len() == 3 { self.expert * self.elements() } else { 0 }
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
        let [height, width] = self.matrix();
        let above = self.expert * if self.transposed { width } else { height };
        if self.transposed {
            // The inner loop goes over the logical tensor's columns: neighbours there, in few rows of the block.
            let columns = &columns[rows];
            for row in 0..width {
                for (i, column) in columns.iter().enumerate() {
                    element(i * width + row, (above + row) * cols + column);
                }
            }
        } else {
            for (i, row) in rows.enumerate() {
                for (j, column) in columns.iter().enumerate() {
                    element(i * width + j, (above + row) * cols + column);
                }
            }
        }
    }
}

/// What names of a folder are like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Naming {
    /// Whether they begin as those of a model with a head.
    pub prefix: bool,
    /// Whether all experts of a block are in one tensor.
    pub fused: bool,
}

/// All tensors of a model of tokens, in the order of the table at [`Model`]; `prefix`: names begin as those of a model
/// with a head. A tied head has no tensor of its own, and every expert has its own ones. Of what the family does not have
/// there are no parts.
pub fn tensors(model: &Model, family: Family, prefix: bool) -> Vec<Tensor> {
    each_tensor(model, family, Naming { prefix, fused: false }).collect()
}

/// The same one by one, by the names of a folder.
pub(crate) fn each_tensor(model: &Model, family: Family, naming: Naming) -> impl Iterator<Item = Tensor> {
    let names = family.names();
    model.all_parameters().map(move |parameter| {
        let parts = parts(model, names, naming, &parameter);
        Tensor { name: parameter.name(), rows: parameter.rows, cols: parameter.cols, parts }
    })
}

/// The name of the head's weight in the library.
pub(crate) fn head_name(family: Family) -> String {
    format!("{}.weight", family.names().head)
}

/// Whether a family has a parameter.
pub(crate) fn has(family: Family, parameter: &ModelParameter) -> bool {
    let names = family.names();
    if parameter.blocks > 1 {
        return names.experts.is_some();
    }
    !names_of(names, Naming { prefix: true, fused: false }, parameter).is_empty()
}

/// What a parameter is made of.
fn parts(model: &Model, names: &Names, naming: Naming, parameter: &ModelParameter) -> Vec<Part> {
    let ModelParameter { block, layer, part, blocks, rows, cols, .. } = *parameter;
    let prefix = if naming.prefix { names.prefix } else { "" };
    let before = match block {
        Some(block) => format!("{prefix}{}{block}.", names.blocks),
        None if layer == "head" => String::new(),
        None => prefix.to_owned(),
    };
    if blocks > 1 {
        let experts = names.experts.iter();
        return experts.flat_map(|names| expert_parts(model, names, naming.fused, &before, parameter)).collect();
    }
    let end = if matches!(part, "bias" | "beta") { "bias" } else { "weight" };
    let is_vector = matches!(part, "gamma" | "beta" | "bias");
    // Tables and the head are rows of tokens in both.
    let transposed = names.transposed && block.is_some() && part == "weight";
    let part = |(name, columns): (&str, Columns)| {
        let width = columns.count(model, cols);
        let shape = if is_vector {
            vec![width]
        } else if transposed {
            vec![width, rows]
        } else {
            vec![rows, width]
        };
        Part { name: format!("{before}{name}.{end}"), shape, transposed, columns, expert: 0 }
    };
    names_of(names, naming, parameter).into_iter().map(part).collect()
}

/// The names that hold a parameter of no expert, each with its columns; none where the family does not have it.
fn names_of(names: &Names, naming: Naming, parameter: &ModelParameter) -> Vec<(&'static str, Columns)> {
    let whole = |name| vec![(name, Columns::All)];
    let router = |experts: ExpertNames| if naming.fused { ExpertNames::FUSED_ROUTER } else { experts.router };
    let mut theirs = match (parameter.layer, parameter.part) {
        ("embedding", "positions") => whole(names.positions),
        ("embedding", "table") => whole(names.table),
        ("norm1", _) => whole(names.norm1),
        ("qkv", _) => names.qkv.to_vec(),
        ("query_norm", _) => whole(names.qk_norms[0]),
        ("key_norm", _) => whole(names.qk_norms[1]),
        ("projection", _) => whole(names.projection),
        ("norm1_after", _) => whole(names.norm1_after),
        ("norm2", _) => whole(names.norm2),
        ("norm2_after", _) => whole(names.norm2_after),
        ("up", _) => names.up.to_vec(),
        ("down", _) => whole(names.down),
        ("router", "weight") => whole(names.experts.map_or("", router)),
        ("final_norm", _) => whole(names.final_norm),
        ("head", _) => whole(names.head),
        _ => Vec::new(),
    };
    theirs.retain(|(name, _)| !name.is_empty());
    theirs
}

/// What the matrices of all experts are made of.
fn expert_parts(
    model: &Model,
    names: &ExpertNames,
    fused: bool,
    before: &str,
    parameter: &ModelParameter,
) -> Vec<Part> {
    let ModelParameter { layer, blocks, rows, cols, .. } = *parameter;
    let is_up = layer == "experts.up";
    // In the library, outputs are rows.
    let inputs = rows / blocks;
    let of_expert = |expert: usize| {
        if fused {
            let (name, columns) = if is_up {
                (ExpertNames::FUSED_UP, Columns::GatesUps)
            } else {
                (ExpertNames::FUSED_DOWN, Columns::All)
            };
            let shape = vec![blocks, cols, inputs];
            return vec![Part { name: format!("{before}{name}"), shape, transposed: true, columns, expert }];
        }
        let part = |(name, columns): (&str, Columns)| Part {
            name: format!("{before}{}{expert}.{name}.weight", names.expert),
            shape: vec![columns.count(model, cols), inputs],
            transposed: true,
            columns,
            expert,
        };
        if is_up { names.up.iter().copied().map(part).collect() } else { vec![part((names.down, Columns::All))] }
    };
    (0..blocks).flat_map(of_expert).collect()
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
