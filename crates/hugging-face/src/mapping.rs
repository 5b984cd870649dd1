//! Which tensors of the library a logical tensor is made of, and where their numbers lie in it.

use std::ops::Range;

use quadrille_spec::{Model, Norm, Positions};

use crate::Family;
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

/// Columns of a logical tensor, in the order of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// All, in the order that they have here.
    All,
    /// Of a qkv: all queries, then all keys, then all values.
    QueriesKeysValues,
    /// Of a qkv: the queries of all heads.
    Queries,
    /// Of a qkv: the keys.
    Keys,
    /// Of a qkv: the values.
    Values,
    /// Of a gated perceptron: the gates.
    Gates,
    /// Of a gated perceptron: what the gates are multiplied with.
    Ups,
}

impl Columns {
    /// The columns by number, of a tensor of the model with `cols` columns.
    pub fn numbers(self, model: &Model, cols: usize) -> Vec<usize> {
        let (d, group) = (model.head_dim(), model.heads / model.kv_heads);
        // Of every group `len` columns, after the first `skip`.
        let of_groups = |skip: usize, len: usize| {
            (0..model.kv_heads).flat_map(move |number| (0..len).map(move |i| number * (group + 2) * d + skip + i))
        };
        let (queries, keys, values) = (of_groups(0, group * d), of_groups(group * d, d), of_groups((group + 1) * d, d));
        match self {
            Self::All => (0..cols).collect(),
            Self::QueriesKeysValues => queries.chain(keys).chain(values).collect(),
            Self::Queries => queries.collect(),
            Self::Keys => keys.collect(),
            Self::Values => values.collect(),
            Self::Gates => (0..cols).step_by(2).collect(),
            Self::Ups => (1..cols).step_by(2).collect(),
        }
    }

    /// How many there are.
    fn count(self, model: &Model, cols: usize) -> usize {
        match self {
            Self::All | Self::QueriesKeysValues => cols,
            Self::Queries => model.hidden,
            Self::Keys | Self::Values => model.kv_heads * model.head_dim(),
            Self::Gates | Self::Ups => cols / 2,
        }
    }
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
    let mut mapping = Mapping { model, names: family.names(), tensors: Vec::new() };
    mapping.fill(if prefix { mapping.names.prefix } else { "" });
    mapping.tensors
}

/// The name of the head's weight in the library.
pub(crate) fn head_name(family: Family) -> String {
    format!("{}.weight", family.names().head)
}

struct Mapping<'a> {
    model: &'a Model,
    names: &'static Names,
    tensors: Vec<Tensor>,
}

impl Mapping<'_> {
    fn fill(&mut self, prefix: &str) {
        let Model { hidden, vocab, seq_len, ffn, .. } = *self.model;
        let (qkv, up) = (self.model.qkv_width(), self.model.up_width());
        let names = self.names;
        self.whole("embedding.table", [vocab, hidden], format!("{prefix}{}.weight", names.table));
        if self.model.positions == Positions::Learned {
            self.whole("embedding.positions", [seq_len, hidden], format!("{prefix}{}.weight", names.positions));
        }
        for block in 0..self.model.layers {
            let (ours, theirs) = (format!("block.{block}."), format!("{prefix}{}{block}.", names.blocks));
            self.norm(&format!("{ours}norm1"), &format!("{theirs}{}", names.norm1));
            self.linear(&format!("{ours}qkv"), [hidden, qkv], &theirs, names.qkv);
            self.linear(&format!("{ours}projection"), [hidden; 2], &theirs, &[(names.projection, Columns::All)]);
            self.norm(&format!("{ours}norm2"), &format!("{theirs}{}", names.norm2));
            self.linear(&format!("{ours}up"), [hidden, up], &theirs, names.up);
            self.linear(&format!("{ours}down"), [ffn, hidden], &theirs, &[(names.down, Columns::All)]);
        }
        self.norm("final_norm", &format!("{prefix}{}", names.final_norm));
        if !self.model.tied_head {
            self.whole("head.weight", [vocab, hidden], format!("{}.weight", names.head));
        }
    }

    /// A matrix that is the same there.
    fn whole(&mut self, name: &str, [rows, cols]: [usize; 2], theirs: String) {
        let part = Part { name: theirs, shape: vec![rows, cols], transposed: false, columns: Columns::All };
        self.tensors.push(Tensor { name: name.to_owned(), rows, cols, parts: vec![part] });
    }

    fn norm(&mut self, name: &str, theirs: &str) {
        let hidden = self.model.hidden;
        let mut vector = |ours: &str, end: &str| {
            let part =
                Part { name: format!("{theirs}.{end}"), shape: vec![hidden], transposed: false, columns: Columns::All };
            self.tensors.push(Tensor { name: format!("{name}.{ours}"), rows: 1, cols: hidden, parts: vec![part] });
        };
        vector("gamma", "weight");
        if self.model.norm == Norm::Layer {
            vector("beta", "bias");
        }
    }

    fn linear(&mut self, name: &str, [rows, cols]: [usize; 2], theirs: &str, parts: &[(&str, Columns)]) {
        let transposed = self.names.transposed;
        let weight = |(part, columns): &(&str, Columns)| {
            let width = columns.count(self.model, cols);
            let shape = if transposed { vec![width, rows] } else { vec![rows, width] };
            Part { name: format!("{theirs}{part}.weight"), shape, transposed, columns: *columns }
        };
        let bias = |(part, columns): &(&str, Columns)| Part {
            name: format!("{theirs}{part}.bias"),
            shape: vec![columns.count(self.model, cols)],
            transposed: false,
            columns: *columns,
        };
        let (weights, biases) = (parts.iter().map(weight).collect(), parts.iter().map(bias).collect());
        self.tensors.push(Tensor { name: format!("{name}.weight"), rows, cols, parts: weights });
        if self.model.biases {
            self.tensors.push(Tensor { name: format!("{name}.bias"), rows: 1, cols, parts: biases });
        }
    }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::Activation;

    use super::*;

    /// Two groups of two heads of two numbers.
    fn grouped() -> Model {
        Model {
            kv_heads: 2,
            tied_head: false,
            biases: false,
            norm: Norm::Rms,
            positions: Positions::Rotary,
            activation: Activation::Swiglu,
            ffn: 3,
            ..Model::gpt(1, 8, 4, 5, 6)
        }
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
            (Model { tied_head: false, positions: Positions::Rotary, ..Model::gpt(2, 12, 3, 7, 5) }, Family::GptNeox),
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
