//! The matrices of a layer: which tile of each a rank holds, and who holds the same one.

use std::ops::Range;

use quadrille_spec::{Axis, AxisSet};
use quadrille_step::{Layer, Parameter, StageProgram};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mesh::{listed, same};
use crate::{Style, Table, Text, table};
use quadrille_step::wrap::columns;

/// A matrix and a rank's tile of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tile {
    /// The name, without the number of the block: `qkv.weight`.
    pub name: String,
    /// Experts that have one each; 1: it is one matrix.
    pub experts: usize,
    /// Rows of the matrix, of one expert: inputs.
    pub rows: usize,
    /// Columns of the matrix: outputs.
    pub cols: usize,
    /// Rows and columns of all tiles together: padding of a vocabulary and copies of keys and values included.
    pub stored: [usize; 2],
    /// Neighbours along x that hold copies of the same keys and values; 1: there are no copies.
    pub copies: usize,
    /// How it lies over axes of several ranks: `rows y · cols x · flat z`.
    pub sharding: String,
    /// The experts of which the rank has tiles, from the first to before the last.
    pub held_experts: Range<usize>,
    /// Rows of the tile.
    pub held_rows: Range<usize>,
    /// Columns of the tile.
    pub held_cols: Range<usize>,
    /// Which of how many parts of the tile, row after row, the rank stores.
    pub part: [usize; 2],
    /// Bytes that it stores.
    pub bytes: u64,
    /// The axes along which others hold the same: `data`.
    pub same_over: String,
    /// Those ranks, itself among them; at most the first 64.
    pub same_on: Vec<usize>,
    /// How many they are.
    pub same_count: usize,
}

/// The matrices of a layer on a rank.
pub fn tiles(stage: &StageProgram, rank: usize, layer: Layer) -> Vec<Tile> {
    let of_layer = stage.parameters.iter().filter(|parameter| parameter.layer == layer && parameter.decay);
    of_layer.map(|parameter| tile(stage, rank, parameter)).collect()
}

fn tile(stage: &StageProgram, rank: usize, parameter: &Parameter) -> Tile {
    let value = stage.value(parameter.value);
    let grid = stage.grid();
    let sharding = value.sharding;
    let place = grid.coordinate(rank);
    let range = |size: usize, axes: &[Axis]| {
        let parts: usize = axes.iter().map(|axis| grid.size(*axis)).product();
        let each = size / parts;
        let at = grid.shard_index(place, axes);
        at * each..(at + 1) * each
    };
    let flat: usize = sharding.flat.iter().map(|axis| grid.size(*axis)).product();
    let (same_axes, same_on) = same(&stage.layout, rank, sharding.sharded());
    Tile {
        name: value.short_name(),
        experts: value.blocks,
        rows: parameter.rows / value.blocks,
        cols: parameter.cols,
        stored: [value.rows / value.blocks, value.cols],
        copies: parameter.shared.map_or(1, |shared| shared.copies),
        sharding: sharding.seen_on(grid).to_string(),
        held_experts: range(value.blocks, &sharding.blocks),
        held_rows: range(value.rows / value.blocks, &sharding.rows),
        held_cols: range(value.cols, &sharding.cols),
        part: [grid.shard_index(place, &sharding.flat), flat],
        bytes: stage.local_bytes(parameter.value),
        same_over: if same_axes == AxisSet::EMPTY { String::new() } else { same_axes.key() },
        same_count: grid.size_of(same_axes),
        same_on,
    }
}

/// For people, of a rank.
pub fn text(tiles: &[Tile], width: usize) -> Text {
    let style = Style { width: Some(width), color: false };
    Text::from(listing(tiles, width)) + notes(tiles).iter().map(|note| style.wrapped(note)).collect::<String>()
}

/// What is more in the tiles than in the matrices.
fn notes(tiles: &[Tile]) -> Vec<String> {
    let of = |tile: &Tile| {
        let padding = tile.stored[0] - tile.rows;
        let [rows, cols] = tile.stored;
        let copied = (tile.copies > 1).then(|| format!("  {}: {} ranks next to each other along x hold copies of the same keys and values, so the tiles have {cols} columns together\n", tile.name, tile.copies));
        let padded =
            (padding > 0).then(|| format!("  {}: the vocabulary is padded by {padding} to {rows} rows\n", tile.name));
        [copied, padded].into_iter().flatten()
    };
    tiles.iter().flat_map(of).collect()
}

fn listing(tiles: &[Tile], width: usize) -> Table {
    let span = |range: &Range<usize>, whole: usize| {
        if range.len() == whole { "all".to_owned() } else { format!("{}..{}", range.start, range.end) }
    };
    let has_experts = tiles.iter().any(|tile| tile.experts > 1);
    let has_parts = tiles.iter().any(|tile| tile.part[1] > 1);
    let rows = tiles.iter().map(|tile| {
        let experts = has_experts.then(|| match tile.experts {
            1 => "-".to_owned(),
            count => span(&tile.held_experts, count),
        });
        let part = has_parts.then(|| match tile.part {
            [_, 1] => "whole".to_owned(),
            [at, parts] => format!("{} of {parts}", at + 1),
        });
        let same = match tile.same_count {
            1 => "nobody else".to_owned(),
            count => format!("{} ({})", listed(&tile.same_on, count), tile.same_over),
        };
        let first = [tile.name.clone(), format!("{} x {}", tile.rows, tile.cols)];
        let held = [span(&tile.held_rows, tile.stored[0]), span(&tile.held_cols, tile.stored[1])];
        first.into_iter().chain(experts).chain(held).chain(part).chain([same]).collect::<Vec<_>>()
    });
    let header = |last| {
        let first = ["weight", "in x out"].into_iter().chain(has_experts.then_some("experts"));
        first.chain(["rows", "columns"]).chain(has_parts.then_some("part")).chain([last]).collect::<Vec<_>>()
    };
    let mut rows: Vec<Vec<String>> = rows.collect();
    let text = table(&header("the same on ranks"), &rows);
    if text.shown(Style::FULL).lines().all(|line| columns(line) <= width) {
        return text;
    }
    // Which ranks hold the same takes most room: how many they are says enough.
    for (row, tile) in rows.iter_mut().zip(tiles) {
        row.pop();
        row.push(tile.same_count.to_string());
    }
    table(&header("on ranks"), &rows)
}
