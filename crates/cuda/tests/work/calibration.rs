//! A whole calibration on the emulated device gives a cluster that layouts are planned for and measured against there.

use quadrille_cost::native::{Framework, Problem};
use quadrille_cuda::DeviceKind;
use quadrille_engine::{Hyper, TrainOptions};
use quadrille_measure::calibration::{CalibrationSpec, Case};
use quadrille_measure::local::LocalCase;
use quadrille_spec::{Cluster, Efficiency, ElementType, Layout, LayoutRequest, Model};

use crate::device;

#[test]
fn a_device_is_measured_planned_for_and_predicted() {
    let (_emulated, _alone) = device();
    let spec = CalibrationSpec { runs: 1, device: &DeviceKind::Emulated, ..CalibrationSpec::new(2, 2) };
    let measured = spec.measure(&|_| ()).unwrap();
    assert_eq!(measured.setup.crowding(), 2.0, "two ranks share the device");
    let copies = measured.cases.iter().filter(|measured| matches!(measured.case, Case::HostCopy { .. })).count();
    assert_eq!(copies, 1);
    let fitted = measured.fitted().unwrap();
    let cluster = measured.cluster(&fitted).unwrap();
    let cluster = Cluster::from_toml(&cluster.to_toml().unwrap()).unwrap();
    let device = cluster.device.as_ref().unwrap();
    let place = "2 ranks of this machine, up to 2 on a device: emulated device";
    assert!(device.name.contains(place) && cluster.source.contains(place), "{}, {}", device.name, cluster.source);
    assert!(device.source.contains("element-wise work in bf16"), "{}", device.source);
    assert!(device.launch_seconds > 0.0 && device.host_bandwidth.is_some_and(|rate| rate > 0.0));
    for table in [Some(&device.attention), device.half_attention.as_ref(), device.half_products.as_ref()] {
        assert!(matches!(table, Some(Efficiency::Table { entries }) if entries.len() == 1), "{table:?}");
    }
    // Steps in bf16 and f32, predicted by it and measured there.
    let model = Model::gpt(1, 8, 2, 16, 4);
    for dtype in [ElementType::Bf16, ElementType::F32] {
        let layout = |grid: &str| {
            let request = LayoutRequest { dtype, vocab_multiple: 4, ..LayoutRequest::new(grid.parse().unwrap(), 4) };
            Layout::new(&model, &request).unwrap()
        };
        let layouts = vec![layout("x=2"), layout("data=2")];
        let options = TrainOptions::new(3, Hyper::default(), 1);
        let case = LocalCase::new(model.clone(), cluster.clone(), layouts, options).unwrap();
        let comparison = case.measure(&DeviceKind::Emulated, &mut |_| ()).unwrap();
        comparison.check_ledgers().unwrap();
        assert!(comparison.rows.iter().all(|row| row.pair().is_some_and(|pair| pair.predicted > 0.0)));
        // What is priced takes the rates of its type.
        let framework = Framework::QUADRILLE.in_types_of(&case.layouts[0].layout);
        Problem::new(&model, &cluster, framework, 4, 4).unwrap();
        let (attention, peak) = framework.attention_rates(device);
        let expected = match dtype {
            ElementType::Bf16 => (device.half_attention.as_ref().unwrap(), device.peak.half.unwrap()),
            _ => (&device.attention, device.peak.single),
        };
        assert_eq!((attention, peak), expected);
    }
}
