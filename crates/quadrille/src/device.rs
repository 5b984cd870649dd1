//! `--device`: what ranks compute on.

use clap::{Args, ValueEnum};
use quadrille_cuda::DeviceKind;
use quadrille_engine::{Device, Processor};

/// What ranks compute on.
#[derive(Debug, Args)]
pub struct DeviceArguments {
    /// What ranks compute on
    #[arg(long, value_name = "DEVICE", value_enum, default_value_t)]
    pub device: Named,
}

/// A device, as it is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Named {
    /// The processor
    #[default]
    Cpu,
    /// NVIDIA's GPUs: rank r has number r modulo how many there are; needs the driver, libnvrtc and libcublasLt
    Cuda,
    /// One emulated GPU for all ranks, slow, that runs the same kernels; in builds with the feature `emulator`
    Emulated,
}

impl Named {
    /// The device.
    pub fn device(self) -> &'static dyn Device {
        match self {
            Self::Cpu => &Processor,
            Self::Cuda => &DeviceKind::Cuda,
            Self::Emulated => &DeviceKind::Emulated,
        }
    }
}
