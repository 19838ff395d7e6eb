//! Fetches what `top` shows, beside the screen: keys are never waited for by the network.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use antiphon_server::api::model::{
    JobDetail, JobPage, JobSummary, NodeList, NumbersView, ServerStatus,
};

use crate::client::{Client, escape};
use crate::failure::Failure;

const EVERY: Duration = Duration::from_secs(1);
/// Pages of jobs that are fetched: what nobody scrolls to is not.
const PAGES_MAX: usize = 5;

/// The server at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) status: ServerStatus,
    pub(crate) numbers: NumbersView,
    pub(crate) jobs: Vec<JobSummary>,
    /// Whether there are more than were fetched.
    pub(crate) more: bool,
    pub(crate) gpus: Gpus,
    pub(crate) job: Option<JobDetail>,
}

/// GPUs of all nodes, in thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gpus {
    pub(crate) busy: u64,
    pub(crate) held: u64,
    pub(crate) idle: u64,
    pub(crate) out: u64,
}

/// News from the server, or why there are none.
pub(crate) type News = Result<Box<Snapshot>, Failure>;

pub(crate) struct Fetcher {
    news: Receiver<News>,
    wanted: Sender<Option<String>>,
}

impl Fetcher {
    /// Begins to fetch, once a second.
    pub(crate) fn begin(client: Client) -> Self {
        let (wanted, wishes) = channel();
        let (sender, news) = channel();
        thread::spawn(move || {
            let mut job: Option<String> = None;
            loop {
                match wishes.recv_timeout(EVERY) {
                    Ok(wish) => job = wish,
                    Err(RecvTimeoutError::Timeout) => (),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                let fetched = fetch(&client, job.as_deref()).map(Box::new);
                if sender.send(fetched).is_err() {
                    return;
                }
            }
        });
        Self { news, wanted }
    }

    /// Fetches this job as well from now on, and at once.
    pub(crate) fn want(&self, job: Option<String>) {
        // The thread ends with the screen alone.
        let _ = self.wanted.send(job);
    }

    pub(crate) fn newest(&self) -> Option<News> {
        self.news.try_iter().last()
    }
}

/// Everything that the screens show.
pub(crate) fn fetch(client: &Client, job: Option<&str>) -> Result<Snapshot, Failure> {
    let status = client.get("/v1/status")?;
    let numbers = client.get("/v1/numbers")?;
    let nodes: NodeList = client.get("/v1/nodes")?;
    let (mut jobs, mut cursor, mut more) = (Vec::new(), String::new(), false);
    for _ in 0..PAGES_MAX {
        let page: JobPage = client.get(&format!("/v1/jobs?all=false{cursor}"))?;
        jobs.extend(page.jobs);
        more = page.next.is_some();
        match page.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let detail = |job: &str| client.get(&format!("/v1/jobs/{}", escape(job)));
    Ok(Snapshot {
        status,
        numbers,
        jobs,
        more,
        gpus: gpus(&nodes),
        // One that was forgotten meanwhile leaves the screen empty, and the others as they are.
        job: job.and_then(|job| detail(job).ok()),
    })
}

fn gpus(nodes: &NodeList) -> Gpus {
    let mut gpus = Gpus::default();
    for node in &nodes.nodes {
        let all = u64::from(node.gpus) * 1_000;
        let free = node.gpus_free_thousandths.min(all);
        gpus.busy += all - free;
        match (node.state.as_str(), &node.held_for) {
            ("ready", None) => gpus.idle += free,
            ("ready", Some(_)) => gpus.held += free,
            _ => gpus.out += free,
        }
    }
    gpus
}
