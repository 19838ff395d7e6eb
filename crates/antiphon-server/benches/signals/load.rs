//! Sends until the time is over, and counts what was answered with 200.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::Result;
use crate::bodies::Bodies;
use crate::client::Client;
use crate::host::Host;

/// What was sent and taken in.
pub(crate) struct Sent {
    pub(crate) signals: u64,
    pub(crate) took: Duration,
}

pub(crate) fn send(
    host: &Host,
    bodies: Vec<Bodies>,
    senders: u32,
    during: Duration,
) -> Result<Sent> {
    let mut shares: Vec<Vec<Bodies>> = (0..senders).map(|_| Vec::new()).collect();
    let count = shares.len();
    for (number, job) in bodies.into_iter().enumerate() {
        shares[number % count].push(job);
    }
    let begin = Instant::now();
    let until = begin + during;
    let threads: Vec<_> = shares
        .into_iter()
        .filter(|share| !share.is_empty())
        .map(|share| {
            let to = host.listen;
            std::thread::spawn(move || sender(to, share, until))
        })
        .collect();
    let mut signals = 0;
    for thread in threads {
        signals += thread.join().map_err(|_| "a sender panicked")??;
    }
    Ok(Sent {
        signals,
        took: begin.elapsed(),
    })
}

fn sender(to: SocketAddr, mut jobs: Vec<Bodies>, until: Instant) -> Result<u64> {
    let mut client = Client::connect(to)?;
    let mut signals = 0;
    loop {
        for job in &mut jobs {
            if Instant::now() >= until {
                return Ok(signals);
            }
            let (status, answer) = client.exchange(job.next())?;
            if status != 200 {
                let answer = String::from_utf8_lossy(answer);
                return Err(format!("a batch was answered with {status}: {answer}").into());
            }
            signals += job.signals();
        }
    }
}
