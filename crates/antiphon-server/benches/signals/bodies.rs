//! The batches, encoded before the clock runs. Two a job, sent in turn, so that numbers differ from batch to batch.

use std::fmt::Write as _;

use crate::Size;
use crate::client::request;
use crate::host::Host;

/// Digits of a batch number: it is written over in place.
const SEQ_DIGITS: usize = 12;
const VARIANTS: u32 = 2;

/// One job's requests.
pub(crate) struct Bodies {
    variants: Vec<Vec<u8>>,
    seq_at: Vec<usize>,
    seq: u64,
    signals: u64,
}

impl Bodies {
    /// The next request, with a batch number of its own.
    pub(crate) fn next(&mut self) -> &[u8] {
        self.seq += 1;
        let which = (self.seq % u64::from(VARIANTS)) as usize;
        let body = &mut self.variants[which];
        let mut rest = self.seq;
        // A JSON number has no leading zeros: what is in front of the digits is white space.
        for digit in body[self.seq_at[which]..][..SEQ_DIGITS].iter_mut().rev() {
            *digit = if rest == 0 {
                b' '
            } else {
                b'0' + (rest % 10) as u8
            };
            rest /= 10;
        }
        body
    }

    /// Signals in each request.
    pub(crate) const fn signals(&self) -> u64 {
        self.signals
    }

    /// Bytes of a request.
    pub(crate) fn bytes(&self) -> usize {
        self.variants[0].len()
    }
}

/// The requests of every job.
pub(crate) fn encode(host: &Host, size: &Size) -> Vec<Bodies> {
    host.jobs
        .iter()
        .enumerate()
        .map(|(number, job)| {
            let mut bodies = Bodies {
                variants: Vec::new(),
                seq_at: Vec::new(),
                seq: 0,
                signals: u64::from(size.batch),
            };
            for variant in 0..VARIANTS {
                let body = body(size, job.attempt, number as u32, variant);
                let path = format!("/v1/jobs/{}/signals", job.id);
                let whole = request("POST", &path, &job.token, body.as_bytes());
                let marker = b"\"seq\":";
                let at = whole
                    .windows(marker.len())
                    .position(|window| window == marker);
                bodies
                    .seq_at
                    .push(at.expect("every batch has a number") + marker.len());
                bodies.variants.push(whole);
            }
            bodies
        })
        .collect()
}

fn body(size: &Size, attempt: u32, job: u32, variant: u32) -> String {
    let mut body = format!(
        "{{\"attempt\":{attempt},\"boot\":\"load-{job}\",\"seq\":{:>SEQ_DIGITS$},\"cursor\":0,\"signals\":[",
        0
    );
    for n in 0..size.batch {
        let step = 1_000 + variant * 8 + n / (size.tasks * 2);
        let task = (n / 2) % size.tasks;
        let comma = if n == 0 { "" } else { "," };
        let wobble = (n * 7_919 + variant * 31 + job) % 100;
        if n % 2 == 0 {
            write!(
                body,
                "{comma}{{\"task\":{task},\"step\":{step},\"step_ms\":{}.{wobble:02},\"tokens\":8192,\"loss\":2.{wobble:02},\"grad_norm\":0.8{wobble:02}}}",
                800 + wobble % 10
            )
        } else {
            let shard = (n / 2 + variant) % size.shards;
            write!(
                body,
                "{comma}{{\"task\":{task},\"step\":{step},\"shard\":\"shard_{shard:03}\",\"loss\":2.3{wobble:02},\"samples\":16}}"
            )
        }
        .expect("a string takes everything");
    }
    body.push_str("]}");
    body
}
