use std::path::Path;
use quadrille_checkpoint::*;
use quadrille_spec::{ElementType, Layout, LayoutRequest, Model};
use serde_json::Value;
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() * 1e-9
}
fn main() {
    let folder = std::env::args().nth(1).unwrap();
    let folder = Path::new(&folder);
    let model = Model::gpt(2, 24, 3, 17, 12);
    let layout = Layout::new(&model, &LayoutRequest::new("x=1".parse().unwrap(), 8)).unwrap();
    let about = About { model, layout, dtype: ElementType::F32, step: 1, samples: 0, tokens: 0, seed: 0, hyper: Value::Null, data: Value::Null, run: Value::Null, hugging_face: None };
    let (rows, cols) = (16384, 2048);
    for (tile_rows, tile_cols, read) in [(4096, 2048, 2048), (4096, 512, 2048), (4096, 512, 512), (4096, 2048, 256), (4096, 128, 128), (16, 64, 2048), (2, 8, 2048)] {
        let path = folder.join(format!("t{tile_rows}x{tile_cols}"));
        let (rows, cols) = if tile_cols == 8 { (4096, 256) } else { (rows, cols) };
        let read = read.min(cols);
        if !path.exists() {
            let data = vec![1.0_f32; tile_rows * tile_cols];
            let tiles: Vec<_> = (0..rows / tile_rows).flat_map(|r| (0..cols / tile_cols).map(move |c| (r, c))).map(|(r, c)| (Tile { tensor: "x".into(), quantity: Quantity::Value, row: r * tile_rows, col: c * tile_cols, rows: tile_rows, cols: tile_cols }, data.as_slice().into())).collect();
            let draft = Draft::begin_at(&path, 1).unwrap();
            draft.write::<f32>(0, &tiles).unwrap();
            draft.commit(&about, &[TensorShape { name: "x".into(), rows, cols }], &[0]).unwrap();
        }
        let checkpoint = Checkpoint::open(&path).unwrap();
        let mut out = vec![0.0_f32; read]; let mut reader = checkpoint.reader();
        for round in 0..2 {
            let start = cpu();
            for c in 0..cols / read { for row in 0..rows { reader.read("x", Quantity::Value, row, c * read, &mut out).unwrap(); } }
            let seconds = cpu() - start;
            println!("tiles {tile_rows}x{tile_cols}, read {read}: round {round}: {:.2} GB per CPU second", (rows * cols * 4) as f64 * 1e-9 / seconds);
        }
    }
}
