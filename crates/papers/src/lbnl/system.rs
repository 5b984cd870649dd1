//! The systems of the paper and the time of one communication on them.

use quadrille_spec::SpecError;

use super::sizes::check_size;

/// One tier of the network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    /// Bytes per second in one direction that a device reaches: what the vendor says times the paper's efficiency.
    pub bandwidth: f64,
    /// Seconds of a step of a ring, or of a message.
    pub latency: f64,
}

/// A kind of device and its networks: a constant of the paper's studies, of which only the size of the fast domain is
/// the user's choice.
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    /// As in the published outputs: `A100`, `H200`, `B200`, `B200-next`.
    pub name: &'static str,
    /// FLOP/s of products, FP16.
    pub matrix_flop_per_s: f64,
    /// FLOP/s of everything else, FP16.
    pub vector_flop_per_s: f64,
    /// Bytes per second of a device's memory.
    pub memory_bandwidth: f64,
    /// Bytes of a device's memory.
    pub memory_bytes: f64,
    /// Inside a fast domain (NVLink).
    pub fast: Network,
    /// Between fast domains (InfiniBand), for one network interface.
    pub slow: Network,
    /// Network interfaces of a device.
    pub interfaces: f64,
    /// Devices of a fast domain (NVSwitch domain), `S`.
    pub fast_domain: u64,
}

/// The parameter files of the paper's code, in SI units; a bandwidth stands times its efficiency.
const SYSTEMS: [System; 4] = [
    System {
        name: "A100",
        matrix_flop_per_s: 312e12,
        vector_flop_per_s: 78e12,
        memory_bandwidth: 1555e9,
        memory_bytes: 80e9,
        fast: Network { bandwidth: 300e9 * 0.7, latency: 2.5e-6 },
        slow: Network { bandwidth: 25e9 * 0.7, latency: 5e-6 },
        interfaces: 1.0,
        fast_domain: 4,
    },
    System {
        name: "H200",
        matrix_flop_per_s: 989.4e12,
        vector_flop_per_s: 133.8e12,
        memory_bandwidth: 4800e9,
        memory_bytes: 141e9,
        fast: Network { bandwidth: 450e9 * 0.7, latency: 2.5e-6 },
        slow: Network { bandwidth: 50e9 * 0.7, latency: 5e-6 },
        interfaces: 1.0,
        fast_domain: 64,
    },
    System {
        name: "B200",
        matrix_flop_per_s: 2500e12,
        vector_flop_per_s: 339e12,
        memory_bandwidth: 8000e9,
        memory_bytes: 192e9,
        fast: Network { bandwidth: 900e9 * 0.7, latency: 2.5e-6 },
        slow: Network { bandwidth: 100e9 * 0.7, latency: 5e-6 },
        interfaces: 1.0,
        fast_domain: 4,
    },
    System {
        name: "B200-next",
        matrix_flop_per_s: 3750e12,
        vector_flop_per_s: 508.5e12,
        memory_bandwidth: 16000e9,
        memory_bytes: 384e9,
        fast: Network { bandwidth: 3600e9 * 0.8, latency: 5e-6 },
        slow: Network { bandwidth: 200e9 * 0.8, latency: 1e-5 },
        interfaces: 1.0,
        fast_domain: 64,
    },
];

/// What a group of devices does together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collective {
    /// Every member ends with the whole buffer.
    AllGather,
    /// Every member ends with its share of the reduction.
    ReduceScatter,
    /// Every member ends with the reduction.
    AllReduce,
    /// Every member ends with the root's buffer.
    Broadcast,
    /// The root ends with the reduction.
    Reduce,
    /// A message from one of two members to the other.
    PointToPoint,
}

/// Devices that communicate, and how many of them share a fast domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group {
    /// Number of devices.
    pub size: u64,
    /// How many of them sit in the same fast domain: the group's placement.
    pub fast: u64,
}

impl Group {
    /// A device alone.
    pub const ONE: Self = Self { size: 1, fast: 1 };
}

impl System {
    /// The names of the systems, as a user may write them.
    pub const NAMES: [&str; 4] = ["a100", "h200", "b200", "b200-next"];

    /// The system of that name, in capitals or not, with the fast domain of its parameter file.
    ///
    /// # Errors
    /// A name that is not among [`System::NAMES`].
    pub fn named(name: &str) -> Result<Self, SpecError> {
        SYSTEMS.into_iter().find(|system| system.name.eq_ignore_ascii_case(name)).ok_or_else(|| SpecError::Unknown {
            what: "system",
            name: name.to_owned(),
            known: Self::NAMES.map(str::to_owned).to_vec(),
        })
    }

    /// The same devices in fast domains of `devices`.
    ///
    /// # Errors
    /// No device, or more than any machine has.
    pub fn with_fast_domain(self, devices: u64) -> Result<Self, SpecError> {
        check_size("nvs", devices)?;
        Ok(Self { fast_domain: devices, ..self })
    }

    /// Seconds in which `group` does `kind` with a buffer of `bytes`: the whole buffer, not a member's share (paper,
    /// section III-B; specification, section 3).
    ///
    /// A ring. In one fast domain, or with one member in each, only one of the networks is paid for; else both
    /// transfer at once and every member in a fast domain contributes its interfaces. An all-reduce is charged like a
    /// reduce-scatter unless it spans both networks. `group.fast` is at most `group.size` and the fast domain.
    pub fn communication(&self, kind: Collective, bytes: f64, group: Group) -> f64 {
        let Group { size, fast } = group;
        if bytes == 0.0 || size == 1 {
            return 0.0;
        }
        let steps = (size - 1) as f64;
        let sent = match kind {
            Collective::PointToPoint => {
                let network = if fast == 1 { self.slow } else { self.fast };
                return network.latency + bytes / network.bandwidth;
            }
            Collective::Broadcast | Collective::Reduce => bytes,
            Collective::AllGather | Collective::ReduceScatter | Collective::AllReduce => steps / size as f64 * bytes,
        };
        let domains = size / fast;
        if fast == 1 {
            return self.slow.latency * steps + sent / self.slow.bandwidth;
        }
        if domains == 1 {
            return self.fast.latency * steps + sent / self.fast.bandwidth;
        }
        let rounds = if kind == Collective::AllReduce { 2.0 } else { 1.0 };
        let slow_bandwidth = self.interfaces * fast as f64 * self.slow.bandwidth;
        rounds * (sent / slow_bandwidth).max(sent / self.fast.bandwidth)
            + self.slow.latency * (domains - 1) as f64
            + self.fast.latency * (size - domains) as f64
    }
}
