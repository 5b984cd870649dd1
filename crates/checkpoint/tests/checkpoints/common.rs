//! Checkpoints to be tested: random tilings of random tensors.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use proptest::prelude::*;
use quadrille_checkpoint::{About, CheckpointError, Draft, Number, Quantity, TensorShape, Tile};
use quadrille_spec::{Layout, LayoutRequest, Model, RealType};
use serde_json::json;

/// A description of some run.
pub fn about(step: u64, dtype: RealType) -> About {
    let model = Model::gpt(2, 24, 3, 17, 12).reshaped(|m| {
        m.dropout = 0.1;
        m.norm_epsilon = 1e-5;
    });
    let request = LayoutRequest { dtype: dtype.into(), ..LayoutRequest::new("x=3,y=2,data=2".parse().unwrap(), 8) };
    About {
        layout: Layout::new(&model, &request).unwrap(),
        model,
        dtype,
        step,
        samples: 8 * step,
        tokens: 96 * step,
        seed: u64::MAX,
        hyper: json!({"learning_rate": 3e-3, "clip": null}),
        data: json!({"path": "text.tokens"}),
        run: json!({"name": "a run"}),
        hugging_face: None,
    }
}

/// A number of a tensor that says where it is from.
pub fn number(tensor: usize, quantity: Quantity, row: usize, col: usize) -> f64 {
    let place = ((tensor * 3 + quantity as usize) * 1000 + row) * 1000 + col;
    (place as f64 + 1.0) / 3.0
}

/// A rectangle: row, column, rows, columns.
pub type Cut = (usize, usize, usize, usize);

/// Cuts a rectangle in two, and the parts again, as often as there are `knives`.
pub fn cut(rows: usize, cols: usize, knives: &[(usize, bool, usize)]) -> Vec<Cut> {
    let mut parts = vec![(0, 0, rows, cols)];
    for (which, across, place) in knives {
        let at = which % parts.len();
        let (row, col, rows, cols) = parts[at];
        if *across && rows > 1 {
            let first = 1 + place % (rows - 1);
            parts[at] = (row, col, first, cols);
            parts.push((row + first, col, rows - first, cols));
        } else if !*across && cols > 1 {
            let first = 1 + place % (cols - 1);
            parts[at] = (row, col, rows, first);
            parts.push((row, col + first, rows, cols - first));
        }
    }
    parts
}

/// Tensors, and for each the rectangles of every quantity with the rank that owns them.
#[derive(Debug, Clone)]
pub struct Tiling {
    pub tensors: Vec<TensorShape>,
    pub tiles: Vec<(usize, Quantity, usize, Cut)>,
}

impl Tiling {
    /// The ranks that own something.
    pub fn writers(&self) -> Vec<usize> {
        let mut writers: Vec<usize> = self.tiles.iter().map(|tile| tile.2).collect();
        writers.sort_unstable();
        writers.dedup();
        writers
    }

    /// What a rank writes.
    pub fn tiles_of<T: Number>(&self, writer: usize) -> Vec<(Tile, Cow<'static, [T]>)> {
        let own = self.tiles.iter().filter(|tile| tile.2 == writer);
        own.map(|(tensor, quantity, _, (row, col, rows, cols))| {
            let name = self.tensors[*tensor].name.clone();
            let tile = Tile { tensor: name, quantity: *quantity, row: *row, col: *col, rows: *rows, cols: *cols };
            let numbers = (0..rows * cols)
                .map(|at| T::rounded(number(*tensor, *quantity, row + at / cols, col + at % cols)))
                .collect();
            (tile, Cow::Owned(numbers))
        })
        .collect()
    }

    /// Writes all of it, every rank in a thread of its own.
    pub fn write<T: Number>(&self, folder: &Path, step: u64) -> Result<PathBuf, CheckpointError> {
        let writers = self.writers();
        std::thread::scope(|scope| {
            let threads: Vec<_> = writers
                .iter()
                .map(|writer| scope.spawn(|| Draft::begin(folder, step)?.write::<T>(*writer, &self.tiles_of(*writer))))
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })?;
        Draft::begin(folder, step)?.commit(&about(step, T::TYPE), &self.tensors, &writers)
    }
}

/// Random tilings of one to four tensors by up to five ranks, with or without moments, which may be cut otherwise.
pub fn tilings() -> impl Strategy<Value = Tiling> {
    let knives = || prop::collection::vec((any::<usize>(), any::<bool>(), any::<usize>()), 0..12);
    let tensor = (1_usize..20, 1_usize..30, [knives(), knives(), knives()], prop::collection::vec(0_usize..5, 40));
    (prop::collection::vec(tensor, 1..4), any::<bool>(), prop::collection::vec(any::<u32>(), 120)).prop_map(
        |(drawn, moments, order)| {
            let mut tiling = Tiling { tensors: Vec::new(), tiles: Vec::new() };
            for (at, (rows, cols, knives, owners)) in drawn.into_iter().enumerate() {
                tiling.tensors.push(TensorShape { name: format!("block.{at}.up.weight"), rows, cols });
                for quantity in Quantity::NUMBERS.into_iter().take(if moments { 3 } else { 1 }) {
                    let cut = cut(rows, cols, &knives[quantity as usize]);
                    let owned = cut.into_iter().zip(owners.iter().cycle());
                    tiling.tiles.extend(owned.map(|(place, owner)| (at, quantity, *owner, place)));
                }
            }
            // Ranks write their tiles in any order.
            let mut keyed: Vec<_> = tiling.tiles.into_iter().zip(order).collect();
            keyed.sort_by_key(|(_, key)| *key);
            tiling.tiles = keyed.into_iter().map(|(tile, _)| tile).collect();
            tiling
        },
    )
}

/// The error and its causes.
pub fn message(error: &CheckpointError) -> String {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        message += &format!(": {error}");
        cause = error.source();
    }
    message
}

/// One tensor `x` of `rows x cols` numbers in as many tiles of one number, of one rank.
pub fn small(rows: usize, cols: usize) -> Tiling {
    let tiles = (0..rows * cols).map(|at| (0, Quantity::Value, 0, (at / cols, at % cols, 1, 1))).collect();
    Tiling { tensors: vec![TensorShape { name: "x".to_owned(), rows, cols }], tiles }
}

/// A copy, in `folder`, of the checkpoint of a step that `tiling` makes. It is written once: a disk takes its time.
pub fn copied<T: Number>(folder: &Path, step: u64, tiling: fn() -> Tiling) -> PathBuf {
    /// A checkpoint's name, and its files.
    type Files = (OsString, Vec<(OsString, Vec<u8>)>);
    static WRITTEN: Mutex<BTreeMap<(usize, u64), Files>> = Mutex::new(BTreeMap::new());
    let mut written = WRITTEN.lock().unwrap();
    let (name, files) = written.entry((tiling as usize, step)).or_insert_with(|| {
        let once = tempfile::tempdir().unwrap();
        let path = tiling().write::<T>(once.path(), step).unwrap();
        let file = |entry: fs::DirEntry| (entry.file_name(), fs::read(entry.path()).unwrap());
        let files = fs::read_dir(&path).unwrap().map(|entry| file(entry.unwrap())).collect();
        (path.file_name().unwrap().to_owned(), files)
    });
    let target = folder.join(name);
    fs::create_dir(&target).unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(target.join(name), bytes).unwrap());
    target
}
