//! The mesh: its axes of several ranks, who is whose neighbour along each, and what lies within a node.

use quadrille_spec::{Axis, AxisSet, Layout};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Text, table};
use quadrille_step::wrap::columns;

/// Most ranks of a group that are listed.
const LISTED: usize = 64;

/// The ranks of a layout, seen from one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mesh {
    /// How many there are.
    pub ranks: usize,
    /// How many share a node.
    pub per_node: usize,
    /// The one from which the mesh is seen.
    pub rank: usize,
    /// The axes of several ranks, innermost first.
    pub axes: Vec<MeshAxis>,
}

/// An axis of several ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MeshAxis {
    /// Its name.
    pub axis: String,
    /// Ranks along it.
    pub size: usize,
    /// From a rank to the next along it.
    pub stride: usize,
    /// What it splits.
    pub splits: String,
    /// The rank's place on it.
    pub coordinate: usize,
    /// The ranks along it with which the rank talks, itself among them; at most the first 64.
    pub group: Vec<usize>,
    /// Nodes on which these lie.
    pub nodes: usize,
}

impl Mesh {
    /// Of a layout, seen from a rank.
    pub fn of(layout: &Layout, rank: usize) -> Self {
        let grid = &layout.grid;
        let per_node = layout.per_node.max(1);
        let mut stride = 1;
        let axes = grid.order().axes().into_iter().map(|axis| {
            let size = grid.size(axis);
            let coordinate = grid.coordinate(rank).on(axis);
            let seen = MeshAxis {
                axis: axis.name().to_owned(),
                size,
                stride,
                splits: splits(axis).to_owned(),
                coordinate,
                group: grid.members(rank, axis.only()).take(LISTED).collect(),
                nodes: nodes(rank - coordinate * stride, stride, size, per_node),
            };
            stride *= size;
            seen
        });
        Self { ranks: grid.ranks(), per_node, rank, axes: axes.filter(|axis| axis.size > 1).collect() }
    }

    /// A drawing of at most so many columns, and a table of the axes.
    pub fn text(&self, width: usize) -> Text {
        if self.axes.is_empty() {
            return "mesh: one rank\n".into();
        }
        let nodes = self.ranks.div_ceil(self.per_node);
        let mut text = match nodes {
            1 => Text::heading(&format!("mesh: {} ranks on one node", self.ranks)),
            _ => Text::heading(&format!("mesh: {} ranks, {} on a node", self.ranks, self.per_node.min(self.ranks))),
        };
        text += self.drawing(width);
        let rows = self.axes.iter().map(|axis| {
            let nodes = if axis.nodes == 1 { "one node".to_owned() } else { format!("{} nodes", axis.nodes) };
            let axis_splits = format!("{:<8}{}", axis.axis, axis.splits);
            vec![axis_splits, axis.size.to_string(), listed(&axis.group, axis.size), nodes]
        });
        let header = ["axis    splits", "ranks", &format!("with rank {}", self.rank), "within"];
        text + "\n" + table(&header, &rows.collect::<Vec<_>>())
    }

    /// The axes in turn are columns and rows, then columns and rows of such tables, and so on. Where that is too wide fewer lie
    /// across, and of long axes the first and the last ranks are drawn.
    fn drawing(&self, width: usize) -> String {
        let all: Vec<usize> = (0..self.axes.len()).collect();
        let across = [4, 2, 0]
            .map(|last| all.iter().copied().filter(|level| level % 2 == 0 && *level <= last).collect::<Vec<_>>());
        let fits =
            |text: &String, rows| text.lines().count() <= rows && text.lines().all(|line| columns(line) <= width);
        let tried = [(8, 16), (8, 24), (4, 24), (3, 40), (2, 80)];
        let mut drawings = tried
            .into_iter()
            .flat_map(|(most, rows)| across.iter().map(move |across| (most, rows, across)))
            .map(|(most, rows, across)| (Drawing::of(self, across, most).text(), rows));
        drawings.find(|(text, rows)| fits(text, *rows)).map_or_else(String::new, |(text, _)| text)
    }
}

/// Nodes on which so many ranks lie that begin with `first` and are a stride apart.
fn nodes(first: usize, stride: usize, size: usize, per_node: usize) -> usize {
    if stride < per_node {
        // No node between the first and the last is stepped over.
        (first + (size - 1) * stride) / per_node - first / per_node + 1
    } else {
        size
    }
}

/// What an axis splits, in a few words.
fn splits(axis: Axis) -> &'static str {
    match axis {
        Axis::X => "outputs of a layer",
        Axis::Y => "inputs of a layer",
        Axis::Z => "weights, sequences",
        Axis::Context => "each sequence",
        Axis::Expert => "experts, sequences",
        Axis::Data => "sequences",
        Axis::Pipe => "layers",
    }
}

/// `0 1 2 .. 15`.
pub(super) fn listed(ranks: &[usize], count: usize) -> String {
    let told = |ranks: &[usize]| ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    match ranks {
        [first, second, third, .., last] if count > 4 && ranks.len() == count => {
            format!("{first} {second} {third} .. {last}")
        }
        [first, second, third, ..] if count > 4 => format!("{first} {second} {third} .."),
        ranks => told(ranks),
    }
}

/// Places that are drawn, on some axes each; `None`: those between.
type Places = Vec<Option<Vec<usize>>>;

struct Drawing<'a> {
    mesh: &'a Mesh,
    /// The numbers of the axes that lie across, outermost first, and of those that lie down.
    across: Vec<usize>,
    down: Vec<usize>,
    columns: Places,
    rows: Places,
}

impl<'a> Drawing<'a> {
    fn of(mesh: &'a Mesh, across: &[usize], most: usize) -> Self {
        let (across, down): (Vec<usize>, Vec<usize>) =
            (0..mesh.axes.len()).rev().partition(|level| across.contains(level));
        let places = |axes: &[usize]| {
            let mut places: Places = vec![Some(Vec::new())];
            for axis in axes {
                places = places.into_iter().flat_map(|place| inner(place, mesh.axes[*axis].size, most)).collect();
            }
            places
        };
        let columns = places(&across);
        let rows = places(&down);
        Self { mesh, across, down, columns, rows }
    }

    fn text(&self) -> String {
        let digits = (self.mesh.ranks - 1).to_string().len().max(2);
        let names = |axes: &[usize], place: &[usize]| {
            let each = axes.iter().zip(place).map(|(axis, at)| format!("{} {at}", self.mesh.axes[*axis].axis));
            each.collect::<Vec<_>>()
        };
        let label =
            |row: &Option<Vec<usize>>| row.as_ref().map_or("..".to_owned(), |row| names(&self.down, row).join(" "));
        let margin = self.rows.iter().map(|row| label(row).len()).max().unwrap_or(0) + 3;
        // Where each column begins: a gap wherever an axis further out goes on.
        let mut at = margin;
        let begins: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                if index > 0 {
                    at += digits + 1 + 2 * usize::from(outer(&self.columns[index - 1]) != outer(column));
                }
                at
            })
            .collect();
        let mut text = String::new();
        for (level, axis) in self.across.iter().enumerate() {
            let mut line = String::new();
            let mut last = None;
            for (column, begin) in self.columns.iter().zip(&begins) {
                let Some(place) = column else { continue };
                if last != Some(&place[..=level]) {
                    let is_inner = level + 1 == self.across.len();
                    let name = match (is_inner, last) {
                        (true, Some(_)) => format!("{:>digits$}", place[level]),
                        (true, None) => {
                            // The name of the innermost axis stands in the margin.
                            line = format!("{:>width$} ", self.mesh.axes[*axis].axis, width = margin - 1);
                            format!("{:>digits$}", place[level])
                        }
                        (false, _) => format!("{} {}", self.mesh.axes[*axis].axis, place[level]),
                    };
                    if columns(&line) <= *begin {
                        line = format!("{line:<begin$}{name}");
                    }
                    last = Some(&place[..=level]);
                }
            }
            text += &(line.trim_end().to_owned() + "\n");
        }
        let mut before: Option<&Option<Vec<usize>>> = None;
        for row in &self.rows {
            if before.is_some_and(|before| self.down.len() > 1 && outer(before) != outer(row)) {
                text += "\n";
            }
            before = Some(row);
            let mut line = label(row);
            for (column, begin) in self.columns.iter().zip(&begins) {
                let cell = match (row, column) {
                    (Some(row), Some(column)) => self.rank(row, column).to_string(),
                    _ => "..".to_owned(),
                };
                line = format!("{line:<begin$}{cell:>digits$}");
            }
            text += &(line + "\n");
        }
        text
    }

    fn rank(&self, row: &[usize], column: &[usize]) -> usize {
        let along = |axes: &[usize], place: &[usize]| -> usize {
            axes.iter().zip(place).map(|(axis, at)| at * self.mesh.axes[*axis].stride).sum()
        };
        along(&self.down, row) + along(&self.across, column)
    }
}

/// A place on axes further out, with each place of one more that is drawn.
fn inner(place: Option<Vec<usize>>, size: usize, most: usize) -> Places {
    let Some(place) = place else { return vec![None] };
    let with = |at| Some(place.iter().copied().chain([at]).collect());
    if size <= most {
        return (0..size).map(with).collect();
    }
    let first = most.saturating_sub(2).max(1);
    (0..first).map(with).chain([None, with(size - 1)]).collect()
}

/// A place without its innermost axis.
fn outer(place: &Option<Vec<usize>>) -> Option<&[usize]> {
    place.as_ref().and_then(|place| place.split_last()).map(|(_, outer)| outer)
}

/// The axes along which ranks have the same as `rank` of what is cut over these, pipe aside, and the first 64 of those ranks.
pub(super) fn same(layout: &Layout, rank: usize, cut: AxisSet) -> (AxisSet, Vec<usize>) {
    let axes = layout.grid.several(AxisSet::WORLD.without(Axis::Pipe.only()).without(cut));
    (axes, layout.grid.members(rank, axes).take(LISTED).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_an_axis_are_those_of_its_members() {
        for (stride, size, per_node) in [1, 2, 3, 4, 6, 12].into_iter().flat_map(|stride| {
            (1..=9).flat_map(move |size| [1, 2, 3, 4, 5, 8, 100].map(move |per_node| (stride, size, per_node)))
        }) {
            for first in 0..2 * stride {
                let mut each: Vec<usize> = (0..size).map(|at| (first + at * stride) / per_node).collect();
                each.dedup();
                assert_eq!(nodes(first, stride, size, per_node), each.len(), "{first} {stride} {size} {per_node}");
            }
        }
    }
}
