//! A cluster as its TOML file says it, its validation, and the clusters that come with the program.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::device::{check_fraction, check_rate, check_seconds};
use crate::toml_text::{self, check_name, check_size};
use crate::{Calibration, Cluster, Device, GroupBandwidth, Network, Origins, SpecError, Tier};

const MAX_DEVICES_PER_NODE: usize = 1 << 16;
const MAX_MEMORY: u64 = 1 << 50;

macro_rules! preset {
    ($name:literal) => {
        ($name, include_str!(concat!("../presets/clusters/", $name, ".toml")))
    };
}

/// Name and file of every preset: this machine, sites, makers' systems by age, boxes without fast links.
const PRESETS: [(&str, &str); 15] = [
    preset!("local"),
    preset!("perlmutter"),
    preset!("frontier"),
    preset!("alps"),
    preset!("selene"),
    preset!("summit"),
    preset!("dgx-a100"),
    preset!("dgx-h100"),
    preset!("dgx-h200"),
    preset!("dgx-b200"),
    preset!("gb200-nvl72"),
    preset!("dgx-b300"),
    preset!("gb300-nvl72"),
    preset!("pcie-4x-rtx3090"),
    preset!("pcie-8x-l40s"),
];

/// The fields of a cluster file; see [`Cluster`], [`Tier`] and [`Network`] for their meaning. Without `devices_per_node` a domain of
/// the innermost tier is a node; without tiers, too, all devices share one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterFile {
    name: String,
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices_per_node: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inter_node_bandwidth: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    intra_node_bandwidth: Option<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    group_bandwidths: Vec<GroupBandwidth>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tiers: Vec<Tier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<DeviceChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calibration: Option<Calibration>,
    #[serde(default, skip_serializing_if = "Origins::is_empty")]
    origins: Origins,
}

/// A preset's name, or a table with the fields of [`Device`].
#[derive(Serialize)]
#[serde(untagged)]
enum DeviceChoice {
    Preset(String),
    Described(Box<Device>),
}

/// As an untagged enum is read, but that what is wrong with a table is told.
impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Choice;

        impl<'de> Visitor<'de> for Choice {
            type Value = DeviceChoice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a device, or a table that describes one")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<DeviceChoice, E> {
                Ok(DeviceChoice::Preset(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DeviceChoice, A::Error> {
                let device = Device::deserialize(MapAccessDeserializer::new(map))?;
                Ok(DeviceChoice::Described(Box::new(device)))
            }
        }

        deserializer.deserialize_any(Choice)
    }
}

impl DeviceChoice {
    fn validate(self) -> Result<Device, SpecError> {
        match self {
            Self::Preset(name) => Device::preset(&name),
            Self::Described(device) => device.check_described().map(|()| *device),
        }
    }
}

impl ClusterFile {
    /// The cluster, if every value keeps its rule.
    fn validate(self) -> Result<Cluster, SpecError> {
        check_name(&self.name)?;
        check_tiers(&self.tiers)?;
        for (index, tier) in self.tiers.iter().enumerate() {
            tier.origins.check(&format!("tiers[{index}].origins"), &tier.numbers())?;
        }
        let device = self.device.map(DeviceChoice::validate).transpose()?;
        let network = match (self.devices_per_node, self.inter_node_bandwidth) {
            (devices, None) if !self.tiers.is_empty() => {
                devices.map_or(Ok(()), |devices| check_node(devices, &self.tiers))?;
                network_of_tiers(&self.tiers)
            }
            (devices, bandwidth) => network(devices, bandwidth)?,
        };
        let innermost = self.tiers.first().map(|tier| tier.links as f64 * tier.bandwidth);
        let Some(intra_node_bandwidth) = self.intra_node_bandwidth.or(innermost) else {
            let rule = "a cluster says how fast devices of a node talk to each other";
            return Err(SpecError::invalid("intra_node_bandwidth", "none", rule, "give it, or [[tiers]]"));
        };
        check_rate("intra_node_bandwidth", intra_node_bandwidth)?;
        let device_memory = self.device_memory.or(device.as_ref().map(|device| device.memory));
        if device_memory.is_some_and(|bytes| !(1..=MAX_MEMORY).contains(&bytes)) {
            let bytes = device_memory.unwrap_or_default();
            let rule = format!("a device has 1..={MAX_MEMORY} bytes");
            return Err(SpecError::invalid("device_memory", bytes, rule, "give bytes, or leave it out"));
        }
        let largest = network.map_or(MAX_DEVICES_PER_NODE, |network| network.devices_per_node);
        check_groups(&self.group_bandwidths, largest)?;
        self.calibration.as_ref().map_or(Ok(()), Calibration::check)?;
        self.origins.check("origins", &Cluster::NUMBERS.map(str::to_owned))?;
        Ok(Cluster {
            name: self.name,
            source: self.source,
            device,
            tiers: self.tiers,
            device_memory,
            devices_per_node: self.devices_per_node,
            network,
            intra_node_bandwidth,
            group_bandwidths: self.group_bandwidths,
            calibration: self.calibration,
            origins: self.origins,
        })
    }
}

impl Cluster {
    /// Reads and validates a cluster file: `name`, `source`; `device` (a preset's name or a table of [`Device`]) and
    /// `[[tiers]]` ([`Tier`], innermost first). What AxoNN's model needs follows from the tiers unless it is given:
    /// `intra_node_bandwidth`, for several nodes `devices_per_node` and `inter_node_bandwidth`, a list
    /// `group_bandwidths` of `{ inner, group, bandwidth }`, and `device_memory`. Bytes and bytes per second. A measured
    /// cluster's file has a section `[calibration]` ([`Calibration`]), too.
    ///
    /// # Errors
    /// Text that is no TOML, missing or unknown fields, values outside their rule.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        toml_text::read::<ClusterFile>("a cluster", text)?.validate()
    }

    /// The file of this cluster, everything written out: [`Cluster::from_toml`] gives an equal one.
    ///
    /// # Errors
    /// A value outside its rule, or such as TOML cannot hold.
    pub fn to_toml(&self) -> Result<String, SpecError> {
        let text = toml_text::write("a cluster", &self.name, &self.file())?;
        Self::from_toml(&text).map(|_| text)
    }

    /// Fields of the file of this cluster.
    fn file(&self) -> ClusterFile {
        // What follows from the tiers, or is of domains that are no nodes, is left to them.
        let of_nodes = |network: &Network| {
            let is_node = self.devices_per_node.is_none_or(|devices| devices == network.devices_per_node);
            is_node && Some(*network) != network_of_tiers(&self.tiers)
        };
        let network = self.network.filter(of_nodes);
        ClusterFile {
            name: self.name.clone(),
            source: self.source.clone(),
            device_memory: self.device_memory,
            devices_per_node: self.devices_per_node.or(network.map(|network| network.devices_per_node)),
            inter_node_bandwidth: network.map(|network| network.bandwidth),
            intra_node_bandwidth: Some(self.intra_node_bandwidth),
            group_bandwidths: self.group_bandwidths.clone(),
            tiers: self.tiers.clone(),
            device: self.device.clone().map(|device| DeviceChoice::Described(Box::new(device))),
            calibration: self.calibration.clone(),
            origins: self.origins.clone(),
        }
    }

    /// Holds the device and the tiers against their rules: of use after a change of their numbers.
    ///
    /// # Errors
    /// A value outside its rule.
    pub fn check(&self) -> Result<(), SpecError> {
        self.device.as_ref().map_or(Ok(()), Device::check)?;
        check_tiers(&self.tiers)?;
        self.devices_per_node.map_or(Ok(()), |devices| check_node(devices, &self.tiers))
    }

    /// The cluster of that name, as it comes with the program.
    ///
    /// # Errors
    /// A name that is not among [`Cluster::preset_names`].
    pub fn preset(name: &str) -> Result<Self, SpecError> {
        Self::from_toml(Self::preset_text(name)?)
    }

    /// The file of a preset, to be read by [`Cluster::from_toml`].
    ///
    /// # Errors
    /// A name that is not among [`Cluster::preset_names`].
    pub fn preset_text(name: &str) -> Result<&'static str, SpecError> {
        PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text).ok_or_else(|| SpecError::Unknown {
            what: "cluster",
            name: name.to_owned(),
            known: Self::preset_names().map(str::to_owned).collect(),
        })
    }

    /// The names of all presets.
    pub fn preset_names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }
}

/// Fields of the cluster's file, everything written out.
impl Serialize for Cluster {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.file().serialize(serializer)
    }
}

/// Fields of a cluster file, validated.
impl<'de> Deserialize<'de> for Cluster {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ClusterFile::deserialize(deserializer)?.validate().map_err(D::Error::custom)
    }
}

/// The two levels of AxoNN's model: the outermost tier, and domains of the one below.
fn network_of_tiers(tiers: &[Tier]) -> Option<Network> {
    let [.., inner, outer] = tiers else { return None };
    let bandwidth = outer.links as f64 * outer.bandwidth;
    inner.devices.map(|devices_per_node| Network { devices_per_node, bandwidth })
}

/// A node holds whole domains of a tier, or its domains hold whole nodes.
fn check_node(devices: usize, tiers: &[Tier]) -> Result<(), SpecError> {
    check_size("devices_per_node", devices, MAX_DEVICES_PER_NODE)?;
    for tier in tiers {
        let domain = tier.devices.unwrap_or(0);
        if !domain.is_multiple_of(devices) && !devices.is_multiple_of(domain) {
            let rule = format!(
                "a node holds whole domains of a tier, or a domain whole nodes, and {} joins {domain} devices",
                tier.name
            );
            let remedy = "give a divisor or a multiple of them";
            return Err(SpecError::invalid("devices_per_node", devices, rule, remedy));
        }
    }
    Ok(())
}

fn network(devices_per_node: Option<usize>, bandwidth: Option<f64>) -> Result<Option<Network>, SpecError> {
    let both = "devices_per_node and inter_node_bandwidth describe several nodes together";
    match (devices_per_node, bandwidth) {
        (None, None) => Ok(None),
        (Some(devices_per_node), Some(bandwidth)) => {
            check_size("devices_per_node", devices_per_node, MAX_DEVICES_PER_NODE)?;
            check_rate("inter_node_bandwidth", bandwidth)?;
            Ok(Some(Network { devices_per_node, bandwidth }))
        }
        (Some(devices), None) => {
            Err(SpecError::invalid("devices_per_node", devices, both, "give inter_node_bandwidth, too"))
        }
        (None, Some(bandwidth)) => {
            Err(SpecError::invalid("inter_node_bandwidth", bandwidth, both, "give devices_per_node, too"))
        }
    }
}

/// Every tier but the outermost has a size, a multiple of the one below.
fn check_tiers(tiers: &[Tier]) -> Result<(), SpecError> {
    let mut below = 1;
    for (index, tier) in tiers.iter().enumerate() {
        let field = |name: &str| format!("tiers[{index}].{name}");
        check_name(&tier.name)?;
        let outermost = index + 1 == tiers.len();
        match tier.devices {
            None if !outermost => {
                let rule = "only the outermost tier joins any number of devices";
                return Err(SpecError::invalid(field("devices"), "none", rule, "give the devices of a domain"));
            }
            Some(devices) => {
                check_size(&field("devices"), devices, MAX_DEVICES_PER_NODE)?;
                if devices % below != 0 || devices <= below && index > 0 {
                    let rule = format!("a domain holds several whole domains of the tier below, {below} devices each");
                    return Err(SpecError::invalid(field("devices"), devices, rule, "use a larger multiple"));
                }
                below = devices;
            }
            None => {}
        }
        check_size(&field("links"), tier.links, MAX_DEVICES_PER_NODE)?;
        check_rate(&field("bandwidth"), tier.bandwidth)?;
        check_fraction(&field("efficiency"), tier.efficiency)?;
        check_seconds(&field("latency"), tier.latency)?;
        if !(0.0..=1e12).contains(&tier.half_bytes) {
            let rule = "a size lies in 0..=1e12 bytes";
            return Err(SpecError::invalid(field("half_bytes"), tier.half_bytes, rule, "use e.g. 1e6, or 0"));
        }
    }
    Ok(())
}

/// Every group lies inside a node of `largest` devices and is listed once.
fn check_groups(groups: &[GroupBandwidth], largest: usize) -> Result<(), SpecError> {
    for (index, entry) in groups.iter().enumerate() {
        let field = format!("group_bandwidths[{index}]");
        let value = format!("inner {}, group {}", entry.inner, entry.group);
        let inside = entry.inner.checked_mul(entry.group).is_some_and(|devices| (2..=largest).contains(&devices));
        if entry.group < 2 || !inside {
            let rule = format!("inner * group lies in 2..={largest}, with at least two devices in a group");
            return Err(SpecError::invalid(field, value, rule, "leave it out"));
        }
        if groups[..index].iter().any(|other| (other.inner, other.group) == (entry.inner, entry.group)) {
            return Err(SpecError::invalid(field, value, "a pair is listed once", "leave one of them out"));
        }
        check_rate(&format!("{field}.bandwidth"), entry.bandwidth)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Origin;

    #[test]
    fn presets_hold_the_papers_numbers() {
        // SC24, section VI-B: devices and memory of a node; four NICs of 25 GB/s each on every system.
        for (name, devices, gigabytes) in [("perlmutter", 4, 40), ("frontier", 8, 64), ("alps", 4, 96)] {
            let cluster = Cluster::preset(name).unwrap();
            assert_eq!(cluster.name, name);
            assert_eq!(cluster.network, Some(Network { devices_per_node: devices, bandwidth: 100e9 }));
            assert_eq!(cluster.device_memory, Some(gigabytes << 30));
            // Links in a node are faster for a pair than its share of the network.
            assert!(cluster.group_bandwidth(1, 2) > 100e9 / devices as f64);
        }
        let local = Cluster::preset("local").unwrap();
        assert_eq!((local.name.as_str(), local.network, local.device_memory), ("local", None, None));
        assert!(Cluster::preset("titan").unwrap_err().to_string().contains("known: local, perlmutter"));
    }

    #[test]
    fn presets_hold_the_published_networks() {
        // Device, devices a node, GB/s by which a device joins its innermost network and a node the outermost, one
        // direction.
        for (name, device, devices, inner, outer) in [
            ("perlmutter", "a100-40", 4, 300.0, 100.0),
            ("frontier", "mi250x", 8, 200.0, 100.0),
            ("alps", "gh200", 4, 450.0, 100.0),
            ("selene", "a100-80", 8, 300.0, 200.0),
            ("summit", "v100-16", 6, 100.0, 25.0),
            ("dgx-a100", "a100-80", 8, 300.0, 200.0),
            ("dgx-h100", "h100", 8, 450.0, 400.0),
            ("dgx-h200", "h200", 8, 450.0, 400.0),
            ("dgx-b200", "b200", 8, 900.0, 400.0),
            ("gb200-nvl72", "gb200", 72, 900.0, 3600.0),
            ("dgx-b300", "b300", 8, 900.0, 800.0),
            ("gb300-nvl72", "gb300", 72, 900.0, 7200.0),
            ("pcie-4x-rtx3090", "rtx3090", 4, 31.5, 1.25),
            ("pcie-8x-l40s", "l40s", 8, 31.5, 25.0),
        ] {
            let cluster = Cluster::preset(name).unwrap();
            let rate = |tier: &Tier| tier.links as f64 * tier.bandwidth;
            let [first, .., last] = &cluster.tiers[..] else { panic!("{name} has fewer than two tiers") };
            assert_eq!((rate(first), rate(last)), (inner * 1e9, outer * 1e9), "{name}");
            assert!(last.devices.is_none(), "{name}");
            // 18 compute trays of two superchips.
            let node = if name.ends_with("nvl72") { 4 } else { devices };
            assert_eq!((cluster.devices_per_node, cluster.node_devices()), (Some(node), Some(node)), "{name}");
            assert_eq!(cluster.network, Some(Network { devices_per_node: devices, bandwidth: outer * 1e9 }), "{name}");
            // The tier below the outermost is a node in AxoNN's model, too.
            assert_eq!(cluster.tiers[cluster.tiers.len() - 2].devices, Some(devices), "{name}");
            let given = cluster.device.unwrap();
            assert_eq!((given.name.as_str(), cluster.device_memory), (device, Some(given.memory)), "{name}");
        }
    }

    #[test]
    fn every_preset_is_legal_carries_its_name_and_has_a_source() {
        for name in Cluster::preset_names() {
            let cluster = Cluster::preset(name).unwrap();
            assert_eq!(cluster.name, name);
            assert!(cluster.source.len() > 50, "{name}: {}", cluster.source);
        }
    }

    #[test]
    fn every_number_of_a_preset_says_where_it_is_from() {
        for name in Cluster::preset_names() {
            let cluster = Cluster::preset(name).unwrap();
            for tier in &cluster.tiers {
                let unsaid: Vec<_> = tier.numbers().into_iter().filter(|it| tier.origins.said(it).is_none()).collect();
                assert_eq!(unsaid, [""; 0], "{name}, {}", tier.name);
            }
            let file: ClusterFile = toml_text::read("a cluster", Cluster::preset_text(name).unwrap()).unwrap();
            let written = toml::Value::try_from(file).unwrap();
            for number in Cluster::NUMBERS.into_iter().filter(|number| written.get(number).is_some()) {
                assert!(cluster.origins.said(number).is_some(), "{name}: {number}");
            }
        }
        let h100 = Cluster::preset("dgx-h100").unwrap();
        let origin = |number| h100.origin(number);
        assert_eq!(
            (origin("device.products.ceiling"), origin("device.products.half_m")),
            (Origin::Fitted, Origin::Assumed)
        );
        assert_eq!((origin("tiers.0.efficiency"), origin("tiers.1.efficiency")), (Origin::Fitted, Origin::Assumed));
        assert_eq!((origin("tiers.7.latency"), origin("tiers")), (Origin::Assumed, Origin::Assumed));
    }

    #[test]
    fn origins_of_unknown_numbers_are_refused() {
        let text = Cluster::preset_text("selene").unwrap();
        assert_eq!(Cluster::from_toml(&Cluster::from_toml(text).unwrap().to_toml().unwrap()), Cluster::from_toml(text));
        for (old, new, field) in [
            ("[tiers.origins]\n", "[tiers.origins]\nlatncy = \"fitted\"\n", "tiers[0].origins.latncy"),
            ("[origins]\n", "[origins]\nbandwidth = \"measured\"\n", "origins.bandwidth"),
        ] {
            let message = Cluster::from_toml(&text.replacen(old, new, 1)).unwrap_err().to_string();
            assert!(message.starts_with(field), "{message}");
        }
        let message = Cluster::from_toml(&text.replacen("\"fitted\"", "\"guessed\"", 1)).unwrap_err().to_string();
        assert!(message.contains("guessed") && message.contains("data_sheet"), "{message}");
    }

    #[test]
    fn fully_connected_nodes_list_every_group() {
        for name in ["perlmutter", "alps"] {
            let cluster = Cluster::preset(name).unwrap();
            for (inner, group) in [(1, 2), (1, 3), (1, 4), (2, 2)] {
                let links = (group - 1) as f64;
                assert_eq!(cluster.group_bandwidth(inner, group), links * cluster.intra_node_bandwidth);
            }
        }
    }

    #[test]
    fn refusals_name_field_value_rule_and_remedy() {
        let base = "name = \"c\"\nsource = \"test\"\nintra_node_bandwidth = 1e9\n";
        let message = |more: &str| Cluster::from_toml(&format!("{base}{more}")).unwrap_err().to_string();
        assert!(message("devices_per_node = 4").contains("give inter_node_bandwidth, too"));
        assert!(message("inter_node_bandwidth = 4e9").contains("give devices_per_node, too"));
        assert!(
            message("devices_per_node = 0\ninter_node_bandwidth = 1e9").contains("devices_per_node = 0: it must lie")
        );
        assert!(message("devices_per_node = 4\ninter_node_bandwidth = nan").contains("inter_node_bandwidth = NaN"));
        assert!(message("devices_per_node = 4\ninter_node_bandwidth = inf").contains("inter_node_bandwidth = inf"));
        assert!(message("device_memory = 0").contains("device_memory = 0"));
        assert!(message("nics = 4").contains("unknown field `nics`"));
        let tiers = |node: &str| {
            let tier = |devices| {
                format!("[[tiers]]\nname = \"t\"\n{devices}\nbandwidth = 1e9\nefficiency = 1.0\nlatency = 0.0\n")
            };
            let text = format!("{base}{node}\n{}{}", tier("devices = 6"), tier(""));
            Cluster::from_toml(&text).map(|cluster| (cluster.node_devices(), cluster.network.unwrap().devices_per_node))
        };
        assert_eq!((tiers(""), tiers("devices_per_node = 3")), (Ok((Some(6), 6)), Ok((Some(3), 6))));
        assert_eq!(tiers("devices_per_node = 12"), Ok((Some(12), 6)));
        assert_eq!(
            tiers("devices_per_node = 4").unwrap_err().to_string(),
            "devices_per_node = 4: a node holds whole domains of a tier, or a domain whole nodes, and t joins 6 devices; \
             give a divisor or a multiple of them"
        );
        let group = "{ inner = 2, group = 2, bandwidth = 1e9 }";
        assert!(message(&format!("group_bandwidths = [{group}, {group}]")).contains("listed once"));
        let two = "devices_per_node = 2\ninter_node_bandwidth = 1e9\n";
        assert!(message(&format!("{two}group_bandwidths = [{group}]")).contains("inner * group lies in 2..=2"));
        let one = "group_bandwidths = [{ inner = 4, group = 1, bandwidth = 1e9 }]";
        assert!(message(one).contains("at least two devices"));
    }

    proptest! {
        #[test]
        fn no_input_panics(text in "\\PC{0,200}", devices in any::<usize>(), bandwidth in any::<f64>(),
                           inner in any::<usize>(), group in any::<usize>()) {
            let _ = Cluster::from_toml(&text);
            let groups = [GroupBandwidth { inner, group, bandwidth }];
            let _ = (network(Some(devices), Some(bandwidth)), check_groups(&groups, devices));
        }
    }
}
