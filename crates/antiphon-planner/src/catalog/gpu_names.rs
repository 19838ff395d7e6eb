//! Under which names a GPU type goes: Slurm's GRES types, `nvidia.com/gpu.product` labels, Ray's and SkyPilot's accelerators, what
//! drivers say and what people write. The names stand in `catalog/gpu_names.csv`, each with where it is used.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use super::accelerators;

#[derive(Deserialize)]
struct Row {
    name: String,
    means: String,
    #[expect(dead_code, reason = "for those who read the table")]
    source: String,
}

/// Words in front of a name that name a maker or a line of products, and tell no two parts from each other.
const PREFIXES: [&str; 6] = ["nvidia", "amd", "tesla", "geforce", "instinct", "quadro"];

/// The GPU types that a name may mean, the usual one first; none where it is not known. `a100` may be any A100, and
/// `NVIDIA-A100-SXM4-80GB` is one. Some are not in the table of accelerators: they have a name, and cannot be planned for.
#[must_use]
pub fn gpu_types(name: &str) -> &'static [String] {
    static NAMES: OnceLock<BTreeMap<String, Vec<String>>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let mut names: BTreeMap<String, Vec<String>> =
            csv::Reader::from_reader(include_str!("../../catalog/gpu_names.csv").as_bytes())
                .deserialize::<Row>()
                .map(|row| row.expect("the compiled-in table of names is well formed"))
                .map(|row| {
                    let means = row.means.split('|').map(str::to_owned).collect();
                    (key(&row.name), means)
                })
                .collect();
        // Each type goes by its own name.
        let means: Vec<String> = names.values().flatten().cloned().collect();
        let known = accelerators().iter().map(|known| known.name.clone());
        for name in known.chain(means) {
            names.entry(key(&name)).or_insert_with(|| vec![name]);
        }
        names
    });
    names.get(&key(name)).map_or(&[], Vec::as_slice)
}

/// Which of the GPU types on offer a name means, as they are called there: the one that is called so, else all that may be the same
/// part. Exact names win, so that a cluster may call its GPUs as it likes.
#[must_use]
pub fn offered<'a>(name: &str, offer: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut same = Vec::new();
    let wanted = gpu_types(name);
    for other in offer {
        if other == name {
            return vec![other];
        }
        let types = gpu_types(other);
        // Where neither is known, they are the same name if they differ in dashes and case alone.
        let alike = wanted.is_empty() && types.is_empty() && key(other) == key(name);
        let rank = wanted.iter().position(|wanted| types.contains(wanted));
        if let Some(rank) = rank.or(alike.then_some(0)) {
            same.push((rank, other));
        }
    }
    same.sort_by_key(|(rank, _)| *rank);
    same.into_iter().map(|(_, other)| other).collect()
}

/// What a name comes to without case, makers, separators and what is said of sharing.
fn key(name: &str) -> String {
    let name = name.split('(').next().unwrap_or(name).to_ascii_lowercase();
    let mut words: Vec<&str> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let made = |word: &&str| PREFIXES.contains(word);
    let makers = words.iter().take_while(|word| made(word)).count();
    words.drain(..makers);
    // GPUs that are shared in time have a mark behind their product name.
    if words.last() == Some(&"shared") {
        words.pop();
    }
    words.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(name: &str) -> &'static str {
        gpu_types(name).first().map_or("", String::as_str)
    }

    #[test]
    fn every_name_has_a_source_and_stands_once() {
        let text = include_str!("../../catalog/gpu_names.csv");
        let rows: Vec<(String, String, String)> = csv::Reader::from_reader(text.as_bytes())
            .deserialize()
            .collect::<Result<_, _>>()
            .unwrap();
        let keys: std::collections::BTreeSet<String> =
            rows.iter().map(|(name, _, _)| key(name)).collect();
        assert_eq!(keys.len(), rows.len(), "a name stands twice");
        assert!(rows.iter().all(|(_, _, source)| !source.is_empty()));
    }

    #[test]
    fn every_accelerator_goes_by_its_own_name() {
        for known in accelerators() {
            assert_eq!(first(&known.name), known.name);
        }
    }

    #[test]
    fn the_names_of_four_systems_mean_one_part() {
        for (name, part) in [
            ("h100", "H100-SXM-80GB"),
            ("nvidia_h100_80gb_hbm3", "H100-SXM-80GB"),
            ("NVIDIA-H100-80GB-HBM3", "H100-SXM-80GB"),
            ("nvidia-h100-mega-80gb", "H100-SXM-80GB"),
            ("H100_SXM5", "H100-SXM-80GB"),
            ("NVIDIA-A100-SXM4-80GB", "A100-SXM-80GB"),
            ("A100-40G", "A100-SXM-40GB"),
            ("nvidia-tesla-t4", "T4"),
            ("Tesla-V100-SXM2-32GB", "V100-SXM2-32GB"),
            ("NVIDIA-GeForce-RTX-4090", "RTX4090"),
            ("geforce_rtx_3090", "RTX3090"),
            ("rtx_2080_ti", "RTX2080Ti"),
            ("2080ti", "RTX2080Ti"),
            ("NVIDIA-A10G-SHARED", "A10G"),
            ("AMD-Instinct-MI300X-OAM", "MI300X"),
            ("NVIDIA-RTX-6000-Ada-Generation", "RTX-6000-Ada"),
            ("Quadro-RTX-6000", "Quadro-RTX-6000"),
            ("a banana", ""),
            ("", ""),
        ] {
            assert_eq!(first(name), part, "{name}");
        }
    }

    #[test]
    fn a_short_name_is_any_part_that_is_on_offer() {
        let offer = ["a40", "A100-SXM-40GB", "nvidia_a100-sxm4-80gb"];
        assert_eq!(
            offered("a100", offer),
            ["nvidia_a100-sxm4-80gb", "A100-SXM-40GB"]
        );
        assert_eq!(
            offered("NVIDIA-A100-SXM4-80GB", offer),
            ["nvidia_a100-sxm4-80gb"]
        );
        assert_eq!(offered("A40", offer), ["a40"]);
        assert!(offered("h100", offer).is_empty());
    }

    #[test]
    fn an_exact_name_wins_and_unknown_ones_are_compared_by_their_letters() {
        assert_eq!(
            offered("H100", ["H100-SXM-80GB", "H100"]),
            ["H100"],
            "as the cluster calls it"
        );
        assert_eq!(offered("Our_GPU", ["our-gpu", "gpu"]), ["our-gpu"]);
        assert!(offered("our", ["our-gpu"]).is_empty());
    }
}
