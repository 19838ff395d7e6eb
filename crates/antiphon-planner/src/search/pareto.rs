//! What nothing else beats, and which of that to take.

use super::candidate::Candidate;
use super::{Choice, Limits, Offer};

/// Memory left over counts in steps of so much of what is usable.
const MARGIN_STEP: f64 = 0.1;
/// How much dearer than the cheapest the recommended choice may be for being faster.
const DEARER: f64 = 1.25;
/// Hours below which more GPUs are not worth their trouble: getting and starting them takes minutes.
const SOON: f64 = 1.0;

/// Candidates that no other is at least as good as in time, cost, GPUs and margin; so many GPUs beside are paid for with each.
pub(super) fn front(candidates: &[Candidate], offers: &[Offer], beside: f64) -> Vec<Candidate> {
    let cost = |candidate: &Candidate| {
        let usd_h = offers[candidate.offer].machine.usd_h;
        if usd_h > 0.0 {
            usd_h * (candidate.split.gpus as f64 + beside) * candidate.step_ms
        } else {
            f64::INFINITY
        }
    };
    let margin = |candidate: &Candidate| (candidate.margin / MARGIN_STEP).floor();
    let mut sorted: Vec<&Candidate> = candidates.iter().collect();
    // Whatever beats a candidate is no slower, so it stands before it.
    sorted.sort_by(|a, b| {
        (a.step_ms.total_cmp(&b.step_ms))
            .then(cost(a).total_cmp(&cost(b)))
            .then(a.split.gpus.cmp(&b.split.gpus))
            .then(margin(b).total_cmp(&margin(a)))
    });
    let mut front: Vec<Candidate> = Vec::new();
    for candidate in sorted {
        let beaten = front.iter().any(|other| {
            cost(other) <= cost(candidate)
                && other.split.gpus <= candidate.split.gpus
                && margin(other) >= margin(candidate)
        });
        if !beaten {
            front.push(*candidate);
        }
    }
    front
}

/// The choice to take, and why: the cheapest that ends in time, the fastest within the budget; without limits, of those that
/// cost little more than the cheapest, the one with the fewest GPUs that ends within the hour, else the fastest.
pub(super) fn recommend(
    choices: &[Choice],
    offers: &[Offer],
    limits: &Limits,
) -> (Option<usize>, String) {
    let within = |choice: &Choice| {
        let soon = limits
            .hours
            .is_none_or(|most| choice.hours.is_none_or(|hours| hours <= most));
        let cheap = limits
            .usd
            .is_none_or(|most| choice.usd.is_none_or(|usd| usd <= most));
        soon && cheap
    };
    let kept: Vec<usize> = (0..choices.len())
        .filter(|&index| within(&choices[index]))
        .collect();
    let Some(&fastest) = kept.first() else {
        return (None, beyond(choices, offers, limits));
    };
    let price = |index: usize| choices[index].usd_m_tokens.unwrap_or(f64::INFINITY);
    let cheapest = kept
        .iter()
        .copied()
        .min_by(|&a, &b| price(a).total_cmp(&price(b)))
        .unwrap_or(fastest);
    let told = |index: usize| said(&choices[index], offers);
    let unknown = match (limits.hours, limits.usd) {
        (None, None) => "",
        _ if choices[fastest].hours.is_none() => {
            "; how long it trains is not said, so no limit could be held"
        }
        _ => "",
    };
    if limits.hours.is_some() && limits.usd.is_none() {
        let reason = format!(
            "{} is the cheapest that ends in time{unknown}",
            told(cheapest)
        );
        return (Some(cheapest), reason);
    }
    if limits.usd.is_some() {
        let reason = format!(
            "{} is the fastest within the budget{unknown}",
            told(fastest)
        );
        return (Some(fastest), reason);
    }
    let affordable = || {
        let kept = kept.iter().copied();
        kept.filter(|&index| price(index) <= price(cheapest) * DEARER)
    };
    let soon = affordable()
        .filter(|&index| choices[index].hours.is_some_and(|hours| hours <= SOON))
        .min_by_key(|&index| choices[index].gpus());
    if let Some(best) = soon.filter(|&best| best != fastest) {
        let reason = format!(
            "{} has the fewest GPUs of those that end within the hour and cost at most {:.0} % more a token than the cheapest: more GPUs would save minutes",
            told(best),
            100.0 * (DEARER - 1.0),
        );
        return (Some(best), reason);
    }
    let best = affordable().next().unwrap_or(fastest);
    let reason = if !price(best).is_finite() {
        format!("{} is the fastest; no price is known", told(best))
    } else if best == fastest && best == cheapest {
        format!("{} is the fastest and the cheapest", told(best))
    } else if best == cheapest {
        format!(
            "{} has the lowest price a token, and all that is faster costs at least {:.0} % more",
            told(best),
            100.0 * (DEARER - 1.0)
        )
    } else {
        format!(
            "{} is the fastest of those that cost at most {:.0} % more a token than the cheapest; {} is {:.0} % cheaper and takes {:.1} times as long",
            told(best),
            100.0 * (DEARER - 1.0),
            told(cheapest),
            100.0 * (1.0 - price(cheapest) / price(best)),
            choices[best].tokens_per_s() / choices[cheapest].tokens_per_s(),
        )
    };
    (Some(best), reason)
}

/// Why nothing keeps to the limits.
fn beyond(choices: &[Choice], offers: &[Offer], limits: &Limits) -> String {
    let mut reasons = Vec::new();
    let fastest = choices.first();
    if let (Some(most), Some(hours), Some(choice)) = (
        limits.hours,
        fastest.and_then(|choice| choice.hours),
        fastest,
    ) && hours > most
    {
        reasons.push(format!(
            "{}, the fastest, takes {hours:.1} h of the {most:.1} h asked for",
            said(choice, offers)
        ));
    }
    let cheapest = choices
        .iter()
        .filter(|choice| choice.usd.is_some())
        .min_by(|a, b| a.usd.unwrap_or(0.0).total_cmp(&b.usd.unwrap_or(0.0)));
    if let (Some(most), Some(choice)) = (limits.usd, cheapest)
        && let Some(usd) = choice.usd
        && usd > most
    {
        reasons.push(format!(
            "{}, the cheapest, costs ${usd:.0} of the ${most:.0} asked for",
            said(choice, offers)
        ));
    }
    if reasons.is_empty() {
        reasons.push("some choice keeps to each limit, none to both".into());
    }
    reasons.join("; ")
}

/// A choice in words.
fn said(choice: &Choice, offers: &[Offer]) -> String {
    let gpu = &offers[choice.offer].machine.gpu.name;
    let mut text = format!("{} {gpu} ({})", choice.gpus(), choice.described());
    match (choice.hours, choice.usd, choice.usd_m_tokens) {
        (Some(hours), Some(usd), _) => text += &format!(" in {hours:.1} h for ${usd:.0}"),
        (Some(hours), None, _) => text += &format!(" in {hours:.1} h"),
        (None, _, Some(usd)) => {
            text += &format!(
                " at {:.0} tokens/s and ${usd:.2} for a million tokens",
                choice.tokens_per_s()
            );
        }
        (None, _, None) => text += &format!(" at {:.0} tokens/s", choice.tokens_per_s()),
    }
    text
}
