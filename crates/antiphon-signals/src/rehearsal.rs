//! A make-believe training run for tests: shards of many kinds, a model whose loss falls, probes, and a trainer that does or
//! does not do what it is told. Everything from one seed.

use antiphon_types::{Diagnosis, DirectiveBody, Finding, Remedy, Timestamp};

use crate::{Context, JobWindow, ProgressSignal, Signal};

/// What the losses of a shard are like.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// So many nats above its category's probe, or below.
    Healthy(f64),
    /// Loss of its own: start, floor, steps to fall to a third.
    Learns(f64, f64, f64),
    /// Uniform random tokens.
    Noise,
    /// This part of its tokens is random.
    Corrupt(f64),
    /// Targets that do not belong to their inputs: it stays where the run started, less what targets have in common.
    Shuffled,
    /// Another language: learned on its own, and slowly.
    WrongLanguage,
    /// So many rows, over and over; each pass takes some of the loss.
    Repeated(f64),
    /// Its loss is not a number.
    Broken,
}

pub(crate) struct Shard {
    pub(crate) name: &'static str,
    pub(crate) category: &'static str,
    pub(crate) kind: Kind,
    pub(crate) weight: f64,
    pub(crate) unique: Option<u64>,
    drawn: f64,
}

/// Start, floor, and steps to fall to a third of the way.
pub(crate) type Curve = (f64, f64, f64);

pub(crate) struct Rehearsal {
    pub(crate) shards: Vec<Shard>,
    pub(crate) categories: Vec<(&'static str, Curve)>,
    pub(crate) probes: bool,
    pub(crate) obeys: bool,
    /// Whether it says at its start what it draws from, with the weights.
    pub(crate) attaches: bool,
    /// The step that it resumes after.
    pub(crate) first_step: u64,
    pub(crate) total_steps: Option<u64>,
    pub(crate) context: Context,
    pub(crate) weights_seen: Vec<Vec<f64>>,
    state: u64,
}

impl Rehearsal {
    pub(crate) fn new(seed: u64, categories: &[(&'static str, Curve)]) -> Self {
        Self {
            shards: Vec::new(),
            categories: categories.to_vec(),
            probes: true,
            obeys: true,
            attaches: true,
            first_step: 0,
            total_steps: None,
            context: Context::default(),
            weights_seen: Vec::new(),
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    pub(crate) fn shard(
        mut self,
        name: &'static str,
        category: &'static str,
        weight: f64,
        kind: Kind,
    ) -> Self {
        let unique = match kind {
            Kind::Repeated(rows) => Some(rows as u64),
            _ => None,
        };
        self.shards.push(Shard {
            name,
            category,
            kind,
            weight,
            unique,
            drawn: 0.0,
        });
        self
    }

    /// Evenly over 0..1 (the multiplier is Knuth's).
    fn unit(&mut self) -> f64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Roughly normal, of deviation 1.
    fn wobble(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    fn curve((start, floor, steps): Curve, step: f64) -> f64 {
        floor + (start - floor) * (-step / steps).exp()
    }

    fn loss(&mut self, index: usize, step: f64) -> f64 {
        let shard = &self.shards[index];
        let (category, kind, drawn) = (shard.category, shard.kind, shard.drawn);
        let (_, curve) = self
            .categories
            .iter()
            .find(|(name, _)| *name == category)
            .unwrap();
        let clean = Self::curve(*curve, step);
        match kind {
            Kind::Healthy(offset) => clean + offset,
            Kind::Learns(start, floor, steps) => Self::curve((start, floor, steps), step),
            Kind::Noise => 7.7,
            Kind::Corrupt(part) => (1.0 - part) * (clean + part) + part * 8.2,
            Kind::Shuffled => clean.max(curve.0 - 0.8),
            Kind::WrongLanguage => 4.2 + 3.2 * (-drawn / 2_500.0).exp(),
            Kind::Repeated(rows) => 0.2 + (clean - 0.2) * (-drawn / rows / 8.0).exp(),
            Kind::Broken => f64::NAN,
        }
    }

    /// Trains from step 1 on: 16 samples a step, a probe of each category every 20.
    pub(crate) fn run(&mut self, steps: u64) -> Vec<Diagnosis> {
        if self.attaches {
            self.attach();
        }
        let mut window =
            JobWindow::new("job-1.1".parse().unwrap()).with_context(self.context.clone());
        let mut said = Vec::new();
        for step in self.first_step..=self.first_step + steps {
            if step > self.first_step {
                self.step(&mut window, step);
            }
            if self.probes && step % 20 == 0 {
                for (category, curve) in self.categories.clone() {
                    let probe = Self::curve(curve, step as f64) + 0.02 * self.wobble();
                    let signal = Signal {
                        step: Some(step),
                        category: Some(category.into()),
                        probe_loss: Some(probe),
                        ..Signal::default()
                    };
                    window.observe(&signal, Timestamp::from_millis(step * 1_000));
                }
            }
            for finding in window.take_findings() {
                if let Finding::Diagnosis(diagnosis) = finding {
                    self.obey(&diagnosis);
                    said.push(*diagnosis);
                }
            }
            self.weights_seen.push(self.shares());
        }
        said
    }

    fn attach(&mut self) {
        for shard in &self.shards {
            let origins = &mut self.context.shards;
            let origin = origins.entry(shard.name.to_owned()).or_default();
            shard.category.clone_into(&mut origin.category);
            origin.samples = shard.unique;
            origin.weight_ppm = Some((shard.weight * 1e6) as u32);
        }
    }

    pub(crate) fn step(&mut self, window: &mut JobWindow, step: u64) {
        let mut drawn = vec![0_u64; self.shards.len()];
        for _ in 0..16 {
            let mut left = self.unit();
            let shares = self.shares();
            let hit = shares.iter().position(|share| {
                left -= share;
                left < 0.0
            });
            drawn[hit.unwrap_or(0)] += 1;
        }
        for (index, samples) in drawn.into_iter().enumerate() {
            if samples == 0 {
                continue;
            }
            let mean = self.loss(index, step as f64);
            let loss = mean + 0.5 * self.wobble() / (samples as f64).sqrt();
            let shard = &mut self.shards[index];
            shard.drawn += samples as f64;
            let signal = Signal {
                task: Some(0),
                step: Some(step),
                shard: Some(shard.name.into()),
                category: Some(shard.category.into()),
                loss: Some(loss),
                samples: Some(samples),
                unique_samples: shard.unique,
                weight: Some(shard.weight),
                progress: self.total_steps.map(|total_steps| ProgressSignal {
                    step,
                    total_steps,
                    target_loss: None,
                }),
                ..Signal::default()
            };
            window.observe(&signal, Timestamp::from_millis(step * 1_000));
        }
    }

    fn obey(&mut self, diagnosis: &Diagnosis) {
        if !self.obeys {
            return;
        }
        for remedy in &diagnosis.remedies {
            match remedy {
                Remedy::Direct(DirectiveBody::SetWeights { weights }) => {
                    for shard in &mut self.shards {
                        if let Some(ppm) = weights.get(shard.name) {
                            shard.weight = f64::from(*ppm) / 1e6;
                        }
                    }
                }
                Remedy::Direct(DirectiveBody::PauseShard { shard: name }) => {
                    let shard = self.shards.iter_mut().find(|shard| shard.name == name);
                    shard.unwrap().weight = 0.0;
                }
                _ => (),
            }
        }
    }

    pub(crate) fn shares(&self) -> Vec<f64> {
        let whole: f64 = self.shards.iter().map(|shard| shard.weight).sum();
        self.shards
            .iter()
            .map(|shard| shard.weight / whole)
            .collect()
    }

    pub(crate) fn share(&self, name: &str) -> f64 {
        let index = self.shards.iter().position(|shard| shard.name == name);
        self.shares()[index.unwrap()]
    }
}
