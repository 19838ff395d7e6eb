//! Development aid.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "dev")]
use antiphon_planner::{memory, profile, row};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let frameworks: &'static profile::Frameworks = match args.get(2) {
        Some(path) => Box::leak(Box::new(
            profile::parse(&std::fs::read_to_string(path).unwrap()).unwrap(),
        )),
        None => profile::frameworks(),
    };
    let frontier = args.get(3).is_some();
    let mut reader = csv::Reader::from_path(&args[1]).unwrap();
    let headers = reader.headers().unwrap().clone();
    for record in reader.records() {
        let record = record.unwrap();
        let cells: row::Cells = headers
            .iter()
            .zip(record.iter())
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        let id = &cells["row_id"];
        let answer = row::read(&cells).and_then(|r| {
            antiphon_planner::plan(&r.spec, &r.machine, frameworks).map(|p| (r, p.run))
        });
        match answer {
            Err(e) => println!("{id}\terr\t{e}"),
            Ok((r, run)) if frontier => println!(
                "{id}\tok\t{}",
                antiphon_planner::plan::longest_sequence(&run, &r.machine)
            ),
            Ok((r, run)) => {
                let m = memory::memory(&run, &r.machine);
                let w = if r.last_stage {
                    memory::stage(&run, run.pp - 1)
                } else {
                    m.worst
                };
                let a = w.parts.sum();
                let v = match r.counter {
                    row::Counter::Allocated => a,
                    row::Counter::Reserved => a * run.profile.reserved_ratio,
                    row::Counter::Device => m.device,
                };
                let g = 1073741824.0;
                println!(
                    "{id}\tok\t{:.3}\t{}\t{}\tw{:.2} g{:.2} o{:.2} a{:.2} l{:.2} b{:.2}\t{}",
                    v / g,
                    m.fits,
                    w.phase.name(),
                    w.parts.weights / g,
                    w.parts.gradients / g,
                    w.parts.optimizer / g,
                    w.parts.activations / g,
                    w.parts.logits / g,
                    w.parts.buffers / g,
                    m.device / g
                );
            }
        }
    }
}
