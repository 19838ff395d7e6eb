//! What a search found, as the shapes of a job: for each GPU type and count the fastest choice, with its speed. Which layout
//! belongs to a shape stays in the choice.

use antiphon_types::{GpuAmount, Shape, Span};

use crate::search::{Choice, Found, Offer};

/// Shapes that a job file may have.
const MOST: usize = 16;

/// The shapes, the recommended one first, then by what a token costs. Each with the index of its choice.
#[must_use]
pub fn shapes(found: &Found, offers: &[Offer]) -> Vec<(Shape, usize)> {
    let Some(recommended) = found.recommended else {
        return Vec::new();
    };
    let mut order: Vec<usize> = (0..found.choices.len()).collect();
    let price = |index: usize| {
        let choice = &found.choices[index];
        choice.usd_m_tokens.unwrap_or(f64::INFINITY)
    };
    order.sort_by(|&a, &b| {
        (b == recommended)
            .cmp(&(a == recommended))
            .then(price(a).total_cmp(&price(b)))
    });
    let mut shapes: Vec<(Shape, usize)> = Vec::new();
    let fastest = found
        .choices
        .iter()
        .map(Choice::tokens_per_s)
        .fold(0.0, f64::max);
    for index in order {
        let shape = shape(&found.choices[index], offers, fastest);
        let known = shapes.iter().any(|(other, _)| {
            (other.gpus, &other.gpu_type, &other.partition)
                == (shape.gpus, &shape.gpu_type, &shape.partition)
        });
        if !known {
            shapes.push((shape, index));
        }
    }
    shapes.truncate(MOST);
    shapes
}

fn shape(choice: &Choice, offers: &[Offer], fastest: f64) -> Shape {
    let run = &choice.run;
    let offer = &offers[choice.offer];
    let machine = &offer.machine;
    // What a job is planned to have inside a node or a fast link, it has to get there.
    let span = if run.gpus <= machine.node {
        Span::Node
    } else if run.gpus <= machine.domain {
        Span::NvlinkDomain
    } else {
        Span::Cluster
    };
    let speed = (1_000.0 * choice.tokens_per_s() / fastest).round() as u32;
    Shape {
        gpus: GpuAmount::from_gpus(u32::try_from(run.gpus).unwrap_or(u32::MAX)),
        gpu_type: Some(machine.gpu.name.clone()),
        partition: offer.partition.clone(),
        span,
        tensor_parallel: if run.tp > 1 { run.tp as u32 } else { 0 },
        speed: speed.clamp(1, 1_000),
        ..Shape::default()
    }
}
