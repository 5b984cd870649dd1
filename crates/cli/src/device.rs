//! `--device`: what ranks compute on.

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use quadrille_cuda::DeviceKind;
use quadrille_engine::{Device, Processor};

/// What ranks compute on.
#[derive(Debug, Args)]
pub struct DeviceArguments {
    /// What ranks compute on: the processor, NVIDIA's GPUs (rank r has number r modulo how many there are; under mpirun each
    /// rank one of its own, by NCCL), or emulated GPUs, in builds with the feature `emulator`: one for all ranks, or as many as
    /// QUADRILLE_EMULATED_DEVICES says; slow
    #[arg(long, value_name = "DEVICE", value_enum, default_value_t)]
    pub device: Named,
}

/// A device, as it is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Named {
    /// The processor.
    #[default]
    Cpu,
    /// NVIDIA's GPUs.
    Cuda,
    /// An emulated GPU.
    Emulated,
}

impl ValueEnum for Named {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Cpu, Self::Cuda, Self::Emulated]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Emulated => "emulated",
        }))
    }
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
