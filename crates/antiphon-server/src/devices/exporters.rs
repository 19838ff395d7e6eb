//! Asks the DCGM exporters of a cluster what its GPUs measure. Each is asked by itself and within a time: one that is away or
//! slow leaves its own node unmeasured, and keeps nobody waiting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use antiphon_backends::{DeviceReading, trust};
use antiphon_types::NodeName;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::dcgm;

/// Between two looks: exporters measure every few seconds themselves.
pub(crate) const EVERY: Duration = Duration::from_secs(10);
/// An exporter that takes longer is away.
const PATIENCE: Duration = Duration::from_secs(3);
/// Exporters that are asked at the same time.
const AT_ONCE: usize = 32;
/// The longest answer: a node of 16 GPUs says some 100 kB, one endpoint for a cluster much more.
const ANSWER_MAX: u64 = 64 << 20;

/// Where DCGM exporters answer.
#[derive(Debug, Clone, Default)]
pub struct Exporters {
    /// The address of one; `{node}` stands for each node. Without it one answers for all.
    pub url: String,
    /// What stands for a node in the address, where that is not its name.
    pub hosts: BTreeMap<String, String>,
}

/// Asks exporters, again and again, with connections that are kept.
pub(crate) struct Asking {
    exporters: Exporters,
    agent: ureq::Agent,
    places: Arc<Semaphore>,
    /// Exporters that did not answer last time, so that each is told of once.
    away: usize,
}

impl Asking {
    pub(crate) fn new(exporters: Exporters) -> Self {
        let tls = trust::of_client(None).expect("no file is read");
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .tls_config(tls)
            .build();
        Self {
            exporters,
            agent: agent.into(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
            away: 0,
        }
    }

    /// What all GPUs measure now, as far as their exporters answer.
    pub(crate) async fn look(&mut self, nodes: &[NodeName]) -> Vec<DeviceReading> {
        let mut asked = JoinSet::new();
        for (node, url) in self.addresses(nodes) {
            let (agent, places) = (self.agent.clone(), self.places.clone());
            asked.spawn(async move {
                let _place = places.acquire_owned().await;
                let answer = tokio::task::spawn_blocking(move || {
                    let text = ask(&agent, &url).map_err(|why| format!("{url}: {why}"))?;
                    Ok::<_, String>(dcgm::read(&text, node.as_ref()))
                });
                answer.await.unwrap_or_else(|error| Err(error.to_string()))
            });
        }
        let mut readings = Vec::new();
        let mut away = Vec::new();
        while let Some(answer) = asked.join_next().await {
            match answer.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(mut of_one) => readings.append(&mut of_one),
                Err(why) => away.push(why),
            }
        }
        if away.len() != self.away {
            self.away = away.len();
            match away.first() {
                Some(first) => {
                    tracing::warn!(count = away.len(), first, "DCGM exporters do not answer");
                }
                None => tracing::info!("all DCGM exporters answer again"),
            }
        }
        readings
    }

    fn addresses(&self, nodes: &[NodeName]) -> Vec<(Option<NodeName>, String)> {
        let Exporters { url, hosts } = &self.exporters;
        if !url.contains("{node}") {
            return vec![(None, url.clone())];
        }
        let address = |node: &NodeName| {
            let name = node.to_string();
            let host = hosts.get(&name).unwrap_or(&name);
            (Some(node.clone()), url.replace("{node}", host))
        };
        nodes.iter().map(address).collect()
    }
}

fn ask(agent: &ureq::Agent, url: &str) -> Result<String, ureq::Error> {
    let mut answer = agent.get(url).call()?;
    let body = answer.body_mut().with_config().limit(ANSWER_MAX);
    body.read_to_string()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{TcpListener, TcpStream};

    use expect_test::expect;

    use super::*;

    /// What an exporter of a node with two GPUs says, in its shape.
    const SAID: &str = r#"# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="pod-7"} 97
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",pci_bus_id="00000000:2A:00.0",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="pod-7"} 0
DCGM_FI_DEV_FB_USED{gpu="0",Hostname="pod-7"} 70000
DCGM_FI_DEV_FB_FREE{gpu="0",Hostname="pod-7"} 11000
DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="pod-7"} 84
DCGM_FI_DEV_POWER_USAGE{gpu="0",Hostname="pod-7"} 612.731
DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="0",Hostname="pod-7"} 36
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="0",Hostname="pod-7"} 1
DCGM_FI_DEV_XID_ERRORS{gpu="0",err_code="48",err_msg="Double Bit ECC Error",Hostname="pod-7"} 48
DCGM_FI_DEV_XID_ERRORS{gpu="1",err_code="0",err_msg="No Error",Hostname="pod-7"} 0
"#;

    /// A server that answers every request with this, or never.
    fn exporter(said: Option<&'static str>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for mut stream in listener.incoming().map_while(Result::ok) {
                match said {
                    Some(said) => answer(&mut stream, said),
                    None => kept.push(stream),
                }
            }
        });
        address
    }

    fn answer(stream: &mut TcpStream, said: &str) {
        let lines = BufReader::new(&*stream).lines().map_while(Result::ok);
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        assert_eq!(head[0], "GET /metrics HTTP/1.1");
        let length = said.len();
        let head =
            format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all((head + said).as_bytes()).unwrap();
    }

    #[tokio::test]
    async fn each_exporter_is_asked_and_one_that_never_answers_hurts_its_own_node_alone() {
        let hosts = [
            ("n1", exporter(Some(SAID))),
            ("n2", exporter(None)),
            ("n3", exporter(Some("no metrics"))),
        ];
        let mut asking = Asking::new(Exporters {
            url: "http://{node}/metrics".into(),
            hosts: hosts.map(|(name, host)| (name.to_owned(), host)).into(),
        });
        let nodes = ["n1", "n2", "n3"].map(NodeName::from);
        let readings = asking.look(&nodes).await;
        expect![[r#"
            [
                DeviceReading {
                    node: NodeName(
                        "n1",
                    ),
                    gpu: 0,
                    utilization_percent: Some(
                        97,
                    ),
                    memory_used: Some(
                        Bytes(
                            73400320000,
                        ),
                    ),
                    memory_total: Some(
                        Bytes(
                            84934656000,
                        ),
                    ),
                    temperature_c: Some(
                        84,
                    ),
                    power_mw: Some(
                        612731,
                    ),
                    throttled: [
                        "power cap",
                        "heat",
                    ],
                    ecc_errors: Some(
                        1,
                    ),
                    xid: Some(
                        48,
                    ),
                },
                DeviceReading {
                    node: NodeName(
                        "n1",
                    ),
                    gpu: 1,
                    utilization_percent: Some(
                        0,
                    ),
                    memory_used: None,
                    memory_total: None,
                    temperature_c: None,
                    power_mw: None,
                    throttled: [],
                    ecc_errors: None,
                    xid: None,
                },
            ]
        "#]]
        .assert_debug_eq(&readings);
        assert_eq!(asking.away, 1);
    }

    #[tokio::test]
    async fn one_endpoint_for_all_says_of_which_node_each_gpu_is() {
        let mut asking = Asking::new(Exporters {
            url: format!("http://{}/metrics", exporter(Some(SAID))),
            ..Exporters::default()
        });
        let readings = asking.look(&["n1".into()]).await;
        let places: Vec<(String, u32)> = readings
            .iter()
            .map(|reading| (reading.node.to_string(), reading.gpu))
            .collect();
        assert_eq!(places, [("pod-7".to_owned(), 0), ("pod-7".to_owned(), 1)]);
    }
}
