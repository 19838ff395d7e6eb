//! Time of collectives between GPUs: a latency for each hop and a bandwidth for each level (alpha-beta), inside a domain of
//! fast links and between domains.

use crate::kernels::Kernels;
use crate::run::Machine;

/// The two levels of a machine's network, in bytes and seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Network {
    domain: f64,
    link: f64,
    network: f64,
    link_s: f64,
    network_s: f64,
}

/// Ranks that take part in a collective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// All of them.
    pub ranks: f64,
    /// Those in one domain.
    pub inside: f64,
}

impl Network {
    /// What collectives reach on a machine.
    #[must_use]
    pub fn new(machine: &Machine, kernels: &Kernels) -> Self {
        // Without a link of their own, GPUs hand data on through host memory.
        let own = machine.gpu.link.starts_with("NVLink ") || machine.gpu.link.contains("Fabric");
        let own = own || machine.gpu.link.starts_with("NVLink-C2C");
        let link = if own && !machine.gpu.link.contains("optional") {
            kernels.link
        } else {
            kernels.host_link
        };
        Self {
            domain: machine.domain.max(1) as f64,
            link: machine.gpu.link_gb_s * 1e9 * link,
            network: machine.inter_gb_s * 1e9 * kernels.network,
            link_s: kernels.link_us * 1e-6,
            network_s: kernels.network_us * 1e-6,
        }
    }

    /// So many ranks, every `stride`-th GPU.
    #[must_use]
    pub fn group(&self, ranks: f64, stride: f64) -> Group {
        let ranks = ranks.max(1.0);
        Group {
            ranks,
            inside: (self.domain / stride).floor().clamp(1.0, ranks),
        }
    }

    /// Every rank gets `bytes`, of which each had its part; the same time for summing and keeping a part.
    #[must_use]
    pub fn gather(&self, group: Group, bytes: f64) -> f64 {
        if group.ranks <= 1.0 {
            return 0.0;
        }
        self.moved(group, bytes) + self.hops(group)
    }

    /// The same in buckets: each pays its own latency.
    #[must_use]
    pub fn gather_in(&self, group: Group, bytes: f64, bucket: f64) -> f64 {
        if group.ranks <= 1.0 || bytes <= 0.0 {
            return 0.0;
        }
        self.moved(group, bytes) + self.hops(group) * (bytes / bucket).max(1.0)
    }

    /// Every rank gets the sum of `bytes` of all: a ring, or a tree where that has less latency.
    #[must_use]
    pub fn reduce(&self, group: Group, bytes: f64) -> f64 {
        if group.ranks <= 1.0 {
            return 0.0;
        }
        let per_hop = if group.ranks > group.inside {
            self.network_s
        } else {
            self.link_s
        };
        let tree = 2.0 * group.ranks.log2().ceil() * per_hop;
        2.0 * self.moved(group, bytes) + tree.min(2.0 * self.hops(group))
    }

    /// Every rank sends `bytes`, in equal parts to all.
    #[must_use]
    pub fn exchange(&self, group: Group, bytes: f64) -> f64 {
        if group.ranks <= 1.0 {
            return 0.0;
        }
        let near = bytes * (group.inside - 1.0) / group.ranks / self.link;
        let far = bytes * (1.0 - group.inside / group.ranks) / self.network;
        let latency = (group.inside - 1.0).min(8.0) * self.link_s
            + if group.ranks > group.inside {
                (group.ranks / group.inside).log2().ceil() * self.network_s
            } else {
                0.0
            };
        near.max(far) + latency
    }

    /// One rank sends `bytes` to the one `stride` GPUs on.
    #[must_use]
    pub fn send(&self, stride: f64, bytes: f64) -> f64 {
        if stride >= self.domain {
            self.network_s + bytes / self.network
        } else {
            self.link_s + bytes / self.link
        }
    }

    /// Seconds that the slower level needs for a gather.
    fn moved(&self, group: Group, bytes: f64) -> f64 {
        let near = bytes * (group.ranks - 1.0) / group.ranks / self.link;
        // All ranks of a domain bring in what is missing, each over its own port.
        let far = bytes * (1.0 - group.inside / group.ranks) / (group.inside * self.network);
        if group.inside > 1.0 {
            near.max(far)
        } else {
            far
        }
    }

    fn hops(&self, group: Group) -> f64 {
        let domains = (group.ranks / group.inside).ceil();
        (group.ranks - domains) * self.link_s + (domains - 1.0) * self.network_s
    }
}

/// What is left of traffic that runs beside work: what sticks out, and how much it slows the work.
#[must_use]
pub fn exposed(traffic: f64, work: f64, contention: f64) -> f64 {
    let hidden = traffic.min(work);
    traffic - hidden + contention * hidden
}
