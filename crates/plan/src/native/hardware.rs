//! The numbers that describe a cluster, by name: what a sweep varies and a sensitivity is asked for.

use quadrille_spec::{Cluster, Device, Efficiency, SpecError, Tier};

/// The names of all numbers of a cluster: `device.memory_bandwidth`, `device.peak.half`, `device.products.ceiling`,
/// `tiers.0.bandwidth`, ... Bytes, seconds, FLOP and fractions, as in cluster files.
pub fn fields(cluster: &Cluster) -> Vec<String> {
    let mut cluster = cluster.clone();
    let device = cluster.device.iter_mut().flat_map(|device| {
        let real = device_numbers(device).into_iter().map(|(name, _)| name.to_owned());
        real.chain(["memory".to_owned()]).map(|name| format!("device.{name}")).collect::<Vec<_>>()
    });
    let mut names: Vec<String> = device.collect();
    for (index, tier) in cluster.tiers.iter_mut().enumerate() {
        names.extend(tier_numbers(tier).into_iter().map(|(name, _)| format!("tiers.{index}.{name}")));
        names.push(format!("tiers.{index}.links"));
        names.extend(tier.devices.map(|_| format!("tiers.{index}.devices")));
    }
    names
}

/// The numbers by which every piece of work or message is priced: all but memory, counts of links and sizes of domains.
pub fn rates(cluster: &Cluster) -> Vec<String> {
    let counts = ["memory", "links", "devices"];
    let is_rate = |name: &String| !counts.iter().any(|count| name.ends_with(&format!(".{count}")));
    fields(cluster).into_iter().filter(is_rate).collect()
}

/// The unit of a field; nothing of fractions and counts.
pub fn unit(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or(name) {
        "vector_rate" => "FLOP/s",
        _ if name.starts_with("device.peak.") => "FLOP/s",
        "memory_bandwidth" | "host_bandwidth" | "bandwidth" => "B/s",
        "launch_seconds" | "latency" => "s",
        "memory" | "half_bytes" => "B",
        _ => "",
    }
}

/// The name of a field for people: of a network with what that is called, `tiers.0.bandwidth (NVLink)`.
pub fn title(cluster: &Cluster, name: &str) -> String {
    let tier = name.strip_prefix("tiers.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
    match tier.and_then(|index| cluster.tiers.get(index)) {
        Some(tier) => format!("{name} ({})", tier.name),
        None => name.to_owned(),
    }
}

/// The value of a field.
///
/// # Errors
/// No field has that name.
pub fn value(cluster: &Cluster, name: &str) -> Result<f64, SpecError> {
    let mut cluster = cluster.clone();
    let value = match field(&mut cluster, name) {
        Some(Field::Real(value)) => Some(*value),
        Some(Field::Bytes(value)) => Some(*value as f64),
        Some(Field::Count(value)) => Some(*value as f64),
        None => None,
    };
    value.ok_or_else(|| unknown(&cluster, name))
}

/// The cluster with another value of a field. Whole numbers are rounded.
///
/// # Errors
/// No field has that name, or the value breaks the rules of clusters.
pub fn with(cluster: &Cluster, name: &str, value: f64) -> Result<Cluster, SpecError> {
    let mut changed = cluster.clone();
    let is_of_node = |tier: &Tier| tier.devices.is_some() && tier.devices == cluster.devices_per_node;
    let node = cluster.tiers.iter().position(is_of_node);
    match field(&mut changed, name) {
        Some(Field::Real(number)) => *number = value,
        Some(Field::Bytes(number)) => *number = value.round() as u64,
        Some(Field::Count(number)) => *number = value.round() as usize,
        None => return Err(unknown(cluster, name)),
    }
    if name == "device.memory" {
        changed.device_memory = changed.device.as_ref().map(|device| device.memory);
    }
    // A node grows and shrinks with the tier that joins it.
    if let Some(node) = node {
        changed.devices_per_node = changed.tiers[node].devices;
    }
    let Err(error) = changed.check() else { return Ok(changed) };
    // Domains that hold no whole nodes: what was changed is to blame, not the node.
    match (node, changed.devices_per_node) {
        (None, Some(devices)) if name.ends_with(".devices") => {
            let rule = format!("a domain holds whole nodes of {devices} devices, or a node whole domains");
            Err(SpecError::invalid(name, value, rule, "give a multiple or a divisor of them"))
        }
        _ => Err(error),
    }
}

fn unknown(cluster: &Cluster, name: &str) -> SpecError {
    SpecError::Unknown { what: "number of the cluster", name: name.to_owned(), known: fields(cluster) }
}

/// A number by its type.
enum Field<'a> {
    Real(&'a mut f64),
    Bytes(&'a mut u64),
    Count(&'a mut usize),
}

fn field<'a>(cluster: &'a mut Cluster, name: &str) -> Option<Field<'a>> {
    let named = |numbers: Vec<(&'static str, &'a mut f64)>, name: &str| {
        numbers.into_iter().find(|(known, _)| *known == name).map(|(_, number)| Field::Real(number))
    };
    if let Some(name) = name.strip_prefix("device.") {
        let device = cluster.device.as_mut()?;
        return if name == "memory" {
            Some(Field::Bytes(&mut device.memory))
        } else {
            named(device_numbers(device), name)
        };
    }
    let (index, name) = name.strip_prefix("tiers.")?.split_once('.')?;
    let tier = cluster.tiers.get_mut(index.parse::<usize>().ok()?)?;
    match name {
        "links" => Some(Field::Count(&mut tier.links)),
        "devices" => tier.devices.as_mut().map(Field::Count),
        _ => named(tier_numbers(tier), name),
    }
}

fn device_numbers(device: &mut Device) -> Vec<(&'static str, &mut f64)> {
    let mut numbers = vec![
        ("memory_bandwidth", &mut device.memory_bandwidth),
        ("memory_efficiency", &mut device.memory_efficiency),
        ("peak.single", &mut device.peak.single),
        ("peak.double", &mut device.peak.double),
        ("vector_rate", &mut device.vector_rate),
        ("launch_seconds", &mut device.launch_seconds),
    ];
    let optional = [
        ("peak.half", &mut device.peak.half),
        ("peak.f16", &mut device.peak.f16),
        ("peak.tf32", &mut device.peak.tf32),
        ("peak.fp8", &mut device.peak.fp8),
        ("peak.fp4", &mut device.peak.fp4),
        ("host_bandwidth", &mut device.host_bandwidth),
    ];
    numbers.extend(optional.into_iter().filter_map(|(name, number)| Some((name, number.as_mut()?))));
    let products = ["products.fraction", "products.ceiling", "products.half_m", "products.half_n", "products.half_k"];
    numbers.extend(efficiency_numbers(&mut device.products, products));
    let half = [
        "half_products.fraction",
        "half_products.ceiling",
        "half_products.half_m",
        "half_products.half_n",
        "half_products.half_k",
    ];
    numbers.extend(device.half_products.iter_mut().flat_map(|products| efficiency_numbers(products, half)));
    let narrow = [
        "narrow_products.fraction",
        "narrow_products.ceiling",
        "narrow_products.half_m",
        "narrow_products.half_n",
        "narrow_products.half_k",
    ];
    numbers.extend(device.narrow_products.iter_mut().flat_map(|products| efficiency_numbers(products, narrow)));
    let attention =
        ["attention.fraction", "attention.ceiling", "attention.half_m", "attention.half_n", "attention.half_k"];
    numbers.extend(efficiency_numbers(&mut device.attention, attention));
    let half = [
        "half_attention.fraction",
        "half_attention.ceiling",
        "half_attention.half_m",
        "half_attention.half_n",
        "half_attention.half_k",
    ];
    numbers.extend(device.half_attention.iter_mut().flat_map(|attention| efficiency_numbers(attention, half)));
    numbers
}

/// The numbers of an efficiency with the names of its fraction, ceiling and half lengths; a table has none.
fn efficiency_numbers<'a>(
    efficiency: &'a mut Efficiency,
    [constant, top, m, n, k]: [&'static str; 5],
) -> Vec<(&'static str, &'a mut f64)> {
    match efficiency {
        Efficiency::Constant { fraction } => vec![(constant, fraction)],
        Efficiency::Curve { ceiling, half_m, half_n, half_k } => {
            vec![(top, ceiling), (m, half_m), (n, half_n), (k, half_k)]
        }
        Efficiency::Table { .. } => Vec::new(),
    }
}

fn tier_numbers(tier: &mut Tier) -> Vec<(&'static str, &mut f64)> {
    vec![
        ("bandwidth", &mut tier.bandwidth),
        ("efficiency", &mut tier.efficiency),
        ("latency", &mut tier.latency),
        ("half_bytes", &mut tier.half_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_read_and_changed() {
        let selene = Cluster::preset("selene").unwrap();
        let names = fields(&selene);
        for wanted in ["device.peak.half", "device.memory", "tiers.0.devices", "tiers.1.bandwidth", "tiers.1.links"] {
            assert!(names.iter().any(|name| name == wanted), "{wanted} in {names:?}");
        }
        for name in &names {
            let before = value(&selene, name).unwrap();
            let after = if before < 1.0 { before / 2.0 } else { 2.0 * before };
            let changed = with(&selene, name, after).unwrap();
            assert_eq!(value(&changed, name), Ok(after), "{name}");
            assert_eq!(with(&changed, name, before).unwrap(), selene, "{name}: nothing else changes");
        }
        assert!(!rates(&selene).iter().any(|name| name == "device.memory" || name == "tiers.0.devices"));
    }

    #[test]
    fn numbers_have_units_and_networks_names() {
        for (name, of) in [
            ("device.peak.half", "FLOP/s"),
            ("device.vector_rate", "FLOP/s"),
            ("device.memory_bandwidth", "B/s"),
            ("device.launch_seconds", "s"),
            ("device.products.half_n", ""),
            ("tiers.1.bandwidth", "B/s"),
            ("tiers.1.latency", "s"),
            ("tiers.1.efficiency", ""),
            ("tiers.1.half_bytes", "B"),
        ] {
            assert_eq!(unit(name), of, "{name}");
        }
        let selene = Cluster::preset("selene").unwrap();
        assert_eq!(title(&selene, "tiers.0.latency"), format!("tiers.0.latency ({})", selene.tiers[0].name));
        assert_eq!(title(&selene, "device.peak.half"), "device.peak.half");
    }

    #[test]
    fn wrong_names_and_values_are_refused() {
        let selene = Cluster::preset("selene").unwrap();
        let message = with(&selene, "device.speed", 1.0).unwrap_err().to_string();
        assert!(message.starts_with("unknown number of the cluster 'device.speed'"), "{message}");
        assert!(message.contains("device.memory_bandwidth") && message.contains("tiers.1.latency"), "{message}");
        let message = with(&selene, "tiers.0.efficiency", 1.5).unwrap_err().to_string();
        assert!(message.starts_with("tiers[0].efficiency = 1.5: a fraction lies in (0, 1]"), "{message}");
        assert!(with(&selene, "tiers.1.devices", 64.0).is_err(), "the outermost tier has no size");
        assert!(with(&Cluster::preset("local").unwrap(), "device.memory", 1e9).is_err());
    }
}
