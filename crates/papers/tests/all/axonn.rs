//! Holds AxoNN's communication model against the paper's examples, closed forms and numbers worked out by hand.
//!
//! Letters as in `axonn`: `m` rows, `k` inputs, `n` outputs; `r(G) = (G-1)/G`.

use proptest::prelude::*;
use quadrille_papers::axonn::{Equation, Linear, Price, linears, price};
use quadrille_spec::{Activations, Axis, Cluster, Grid, Layout, LayoutRequest, Model};

fn model(layers: usize, hidden: usize, heads: usize, seq_len: usize) -> Model {
    let text =
        format!("name = \"m\"\nlayers = {layers}\nhidden = {hidden}\nheads = {heads}\nvocab = 64\nseq_len = {seq_len}");
    Model::from_toml(&text, &[]).unwrap()
}

fn layout(model: &Model, grid: &str, global_batch: usize, microbatch: Option<usize>) -> Layout {
    let request = LayoutRequest {
        activations: Activations::Replicated,
        microbatch,
        ..LayoutRequest::new(grid.parse().unwrap(), global_batch)
    };
    Layout::new(model, &request).unwrap()
}

fn local_price(model: &Model, layout: &Layout) -> Price {
    price(model, layout, &Cluster::preset("local").unwrap(), 2).unwrap()
}

/// r(G), the share of a buffer that a ring's rank sends.
fn r(group: usize) -> f64 {
    (group as f64 - 1.0) / group as f64
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

#[test]
fn one_layer_worked_out_by_hand() {
    // m = 16, x=2, y=4, z=2, data=3; qkv 8 -> 24 (normal), projection 8 -> 8 (transposed).
    let model = model(1, 8, 2, 4);
    let grid = "x=2,y=4,z=2,data=3".parse().unwrap();
    let [qkv, projection, up, down] = linears(&model);
    let elements = |linear: &Linear| Equation::ALL.map(|equation| equation.elements(linear, &grid, 16));
    assert_eq!(elements(&qkv), [12.0, 12.0, 144.0, 16.0, 16.0]);
    assert_eq!(elements(&projection), [4.0, 4.0, 16.0, 48.0, 16.0 / 3.0]);
    assert_eq!(elements(&up), [16.0, 16.0, 192.0, 16.0, 64.0 / 3.0]);
    assert_eq!(elements(&down), [16.0, 16.0, 16.0, 192.0, 64.0 / 3.0]);
    assert_eq!(Equation::ALL.map(|equation| equation.axis(&qkv)), [Axis::Z, Axis::Z, Axis::Y, Axis::X, Axis::Data]);
    assert_eq!(Equation::ALL.map(|equation| equation.axis(&down)), [Axis::Z, Axis::Z, Axis::X, Axis::Y, Axis::Data]);
}

#[test]
fn bytes_and_seconds_follow_from_elements() {
    // The same layer, 12 sequences of 4 tokens over data=3: m = 16. In bf16 on a machine of 8 GB/s for everyone.
    let model = model(5, 8, 2, 4);
    let price = local_price(&model, &layout(&model, "x=2,y=4,z=2,data=3", 12, None));
    assert_eq!(price.terms.len(), 20);
    let of = |equation| price.of(equation).bytes / (5.0 * 2.0);
    assert_eq!(of(Equation::WeightGather), 12.0 + 4.0 + 16.0 + 16.0);
    assert_eq!(of(Equation::OutputReduce), 144.0 + 16.0 + 192.0 + 16.0);
    assert_eq!(price.on(Axis::Y).bytes / (5.0 * 2.0), 144.0 + 48.0 + 192.0 + 192.0);
    let bytes: f64 = Axis::ALL.map(|axis| price.on(axis).bytes).iter().sum();
    assert!(close(price.seconds(), bytes / 8e9));
    assert!(close(price.on(Axis::Z).seconds, price.on(Axis::Z).bytes / 8e9));
}

#[test]
fn microbatches_repeat_the_weights_collectives_only() {
    let model = model(2, 8, 2, 4);
    let whole = local_price(&model, &layout(&model, "x=2,y=2,z=2,data=2", 16, None));
    let four = local_price(&model, &layout(&model, "x=2,y=2,z=2,data=2", 16, Some(2)));
    for (equation, times) in Equation::ALL.into_iter().zip([4.0, 4.0, 1.0, 1.0, 1.0]) {
        assert_eq!(four.of(equation).bytes, times * whole.of(equation).bytes, "{equation:?}");
    }
}

#[test]
fn z_alone_is_fsdp_and_data_alone_is_ddp() {
    let model = model(3, 8, 2, 4);
    let weights = (3 * 12 * 8 * 8) as f64;
    let z = local_price(&model, &layout(&model, "z=4", 4, None));
    assert_eq!(z.of(Equation::WeightGather).bytes, 2.0 * r(4) * weights);
    assert_eq!(z.of(Equation::WeightGradientScatter).bytes, 2.0 * r(4) * weights);
    assert_eq!(z.on(Axis::Z).seconds, z.seconds());
    let data = local_price(&model, &layout(&model, "data=4", 4, None));
    assert_eq!(data.of(Equation::DataReduce).bytes, 2.0 * 2.0 * r(4) * weights);
    assert_eq!(data.on(Axis::Data).seconds, data.seconds());
}

#[test]
fn x_alone_is_megatron() {
    // Narayanan et al. 2021: 8 b s h (t-1)/t elements per layer and device, two all-reduces forward, two backward.
    let layers = 3;
    let hidden = 8;
    let batch = 6;
    let seq_len = 4;
    let t = 4;
    let model = model(layers, hidden, 4, seq_len);
    let price = local_price(&model, &layout(&model, "x=4", batch, None));
    let megatron = (8 * batch * seq_len * hidden * layers) as f64 * r(t);
    assert_eq!(price.on(Axis::X).bytes, 2.0 * megatron);
    assert_eq!(price.of(Equation::OutputReduce), price.of(Equation::InputGradientReduce));
    assert_eq!(price.on(Axis::X).seconds, price.seconds());
}

proptest! {
    #[test]
    fn transposing_a_layer_swaps_x_and_y(
        (k, n, rows) in (1_usize..500, 1_usize..500, 1_usize..500),
        (x, y, z, data) in (1_usize..9, 1_usize..9, 1_usize..9, 1_usize..9),
    ) {
        let normal = Linear { name: "layer", inputs: k, outputs: n, transposed: false };
        let transposed = Linear { transposed: true, ..normal };
        let swapped = |axis| match axis {
            Axis::X => Axis::Y,
            Axis::Y => Axis::X,
            other => other,
        };
        let grid = Grid::new(x, y, z, data).unwrap();
        let mirrored = Grid::new(y, x, z, data).unwrap();
        for equation in Equation::ALL {
            prop_assert_eq!(equation.elements(&normal, &grid, rows), equation.elements(&transposed, &mirrored, rows));
            prop_assert_eq!(equation.axis(&transposed), swapped(equation.axis(&normal)));
        }
    }

    #[test]
    fn a_network_has_the_closed_form_of_its_blocks(
        (layers, scale, rows) in (1_usize..9, 1_usize..5, 1_usize..9),
        (x, y, z, data) in (1_usize..5, 1_usize..5, 1_usize..5, 1_usize..5),
    ) {
        // Per block, f = 4h, rows of a rank q = m/Gz: y 2 r(Gy) (q/Gx) 12h; x 2 r(Gx) (q/Gy) 4h;
        // z 2 r(Gz) 12h^2/(Gx Gy); data 2 r(Gdata) 12h^2/(Gx Gy Gz).
        let model = model(layers, 144 * scale, 12, 3);
        let layout = layout(&model, &format!("x={x},y={y},z={z},data={data}"), rows * z * data, None);
        let price = local_price(&model, &layout);
        let h = model.hidden as f64;
        let q = layout.rows() as f64;
        let gx = x as f64;
        let gy = y as f64;
        let gz = z as f64;
        let expected = [
            2.0 * r(x) * q / gy * 4.0 * h,
            2.0 * r(y) * q / gx * 12.0 * h,
            2.0 * r(z) * 12.0 * h * h / (gx * gy),
            2.0 * r(data) * 12.0 * h * h / (gx * gy * gz),
        ];
        for (axis, expected) in Axis::AXONN.into_iter().zip(expected) {
            let elements = price.on(axis).bytes / 2.0 / layers as f64;
            prop_assert!(close(elements, expected), "{axis}: {elements} instead of {expected}");
        }
    }
}
