//! Draws what `top` shows. Color repeats what words and signs say already; names are shown without what moves a cursor.

use antiphon_server::api::model::{JobDetail, JobSummary, NumberView};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table, Wrap};

use super::app::{App, Screen};
use super::fetch::Gpus;
use crate::render::{gpus, plain, span, steps};

const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// Columns that history is drawn in: one an hour, fewer where there is no room.
const HISTORY_MAX: u16 = 24;
/// Columns in front of it.
const NUMBER: u16 = 66;
/// Lines for the reason of the chosen job.
const REASON: u16 = 3;
const DAY_MS: u64 = 86_400_000;

pub(crate) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, app, head);
    match app.screen {
        Screen::Now => draw_now(frame, app, body),
        Screen::Queue => draw_queue(frame, app, body),
        Screen::Job => draw_job(frame, app, body),
    }
    draw_foot(frame, app, foot);
}

fn draw_head(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let mut tabs = Vec::new();
    for (screen, title) in Screen::ALL {
        let title = if screen == app.screen {
            Span::styled(format!("[{title}]"), STRONG)
        } else {
            Span::raw(format!(" {title} "))
        };
        tabs.extend([title, Span::raw(" ")]);
    }
    let status = &app.shown.status;
    tabs.push(Span::styled(
        format!(
            "  antiphon {} on {}",
            status.version,
            plain(&status.backend)
        ),
        FAINT,
    ));
    let notice = notice(app);
    let notice = match &notice {
        Some(text) => Span::styled(format!("! {text}"), BAD),
        None => Span::styled(format!("event {} of the log", status.seq), FAINT),
    };
    let lines = vec![Line::from(tabs), Line::from(notice)];
    frame.render_widget(Paragraph::new(lines), area);
}

/// What a reader of any screen has to know first.
fn notice(app: &App) -> Option<String> {
    let status = &app.shown.status;
    let reason = status.mode_reason.as_deref().unwrap_or("");
    if let Some(trouble) = &app.trouble {
        let age = span(app.now_ms.saturating_sub(status.now_ms));
        return Some(format!("{age} old: {}", plain(trouble)));
    }
    match status.mode.as_str() {
        "paused" => Some(format!("deciding is paused: {}", plain(reason))),
        "safe" => Some(format!("SAFE MODE: {}", plain(reason))),
        _ => status.gate.as_deref().map(plain),
    }
}

fn draw_foot(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let line = if app.typing {
        format!("/{}_   enter: keep, esc: forget", plain(&app.filter))
    } else {
        let filter = Some(&app.filter).filter(|filter| !filter.is_empty());
        let filter = filter.map_or_else(String::new, |filter| {
            format!("   filter: {}", plain(filter))
        });
        format!(
            "tab 1 2 3: screen  arrows: move  enter: job  /: filter  esc: back  q: quit{filter}"
        )
    };
    frame.render_widget(Paragraph::new(Line::styled(line, FAINT)), area);
}

fn draw_now(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let shown = &app.shown;
    let mut lines = vec![Line::styled(
        format!(
            "{:<32} {:>12} {:>10}  {:<7} {}",
            "THE LAST HOUR", "READS", "REDLINE", "", "A DAY"
        ),
        STRONG,
    )];
    let columns = usize::from(area.width.saturating_sub(NUMBER).min(HISTORY_MAX));
    let numbers = shown.numbers.numbers.iter();
    lines.extend(numbers.map(|number| of_number(number, app.now_ms, columns)));
    let gate = &shown.numbers.gate;
    let kept = gate.kept_back;
    lines.push(Line::raw(match (gate.open, gate.enabled) {
        (false, _) => {
            let left = gate.until_ms.unwrap_or(0).saturating_sub(app.now_ms);
            format!(
                "the gate is SHUT: {kept} best-effort jobs wait for it, at most {} more",
                span(left)
            )
        }
        (true, true) => "the gate is open".into(),
        (true, false) => "the gate is switched off".into(),
    }));
    lines.push(Line::raw(""));
    lines.extend(of_gpus(&shown.gpus));
    lines.push(Line::raw(""));
    let states = ["pending", "starting", "running", "stopping", "held"];
    let count = |state: &str| shown.status.jobs.get(state).copied().unwrap_or(0);
    let living: Vec<String> = states
        .iter()
        .map(|state| format!("{} {state}", count(state)))
        .collect();
    lines.push(Line::from(vec![
        Span::styled("JOBS  ", STRONG),
        Span::raw(living.join(", ")),
    ]));
    let ended = ["succeeded", "failed", "canceled"];
    let ended: Vec<String> = ended
        .iter()
        .map(|state| format!("{} {state}", count(state)))
        .collect();
    lines.push(Line::raw(format!("      {}", ended.join(", "))));
    for class in ["service", "production", "standard", "best-effort"] {
        let of = |state: &str| {
            let jobs = shown.jobs.iter();
            jobs.filter(|job| job.class == class && job.state == state)
                .count()
        };
        let (waiting, running) = (of("pending"), of("running"));
        if waiting + running > 0 {
            lines.push(Line::raw(format!(
                "      {class:<12} {running:>6} running {waiting:>6} waiting"
            )));
        }
    }
    if shown.more {
        lines.push(Line::styled(
            "      (of the first jobs; there are more)",
            FAINT,
        ));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn of_number(number: &NumberView, now_ms: u64, columns: usize) -> Line<'static> {
    let read =
        |value: Option<f64>| value.map_or_else(|| "-".into(), |value| in_unit(value, &number.unit));
    let verdict = match (number.redline, number.value, number.over) {
        (_, None, _) => "no data",
        (None, _, _) => "",
        (_, _, true) => "OVER",
        (_, _, false) => "ok",
    };
    let style = if number.over { BAD } else { Style::new() };
    let text = format!(
        "{:<32} {:>12} {:>10}  {:<7} ",
        plain(&number.title),
        read(number.value),
        number
            .redline
            .map_or_else(String::new, |value| in_unit(value, &number.unit)),
        verdict,
    );
    Line::from(vec![
        Span::styled(text, style),
        Span::raw(history(&number.history, now_ms, columns)),
    ])
}

fn in_unit(value: f64, unit: &str) -> String {
    match unit {
        "share" => format!("{:.1} %", value * 100.0),
        // A reading is a whole number of milliseconds, far below where that is not exact.
        "ms" if value < 1_000.0 => format!("{value:.0} ms"),
        "ms" => span(value as u64),
        _ => format!("{value:.1}"),
    }
}

/// The last day in so many columns, the highest value a full block.
fn history(points: &[(u64, f64)], now_ms: u64, count: usize) -> String {
    let since = now_ms.saturating_sub(DAY_MS);
    let mut columns = vec![None::<f64>; count];
    for (at, value) in points.iter().filter(|(at, _)| *at >= since) {
        let place = usize::try_from((at - since) * count as u64 / DAY_MS).unwrap_or(count);
        // What came after the clock was read stands in the last column.
        if let Some(column) = columns.get_mut(place.min(count.saturating_sub(1))) {
            *column = Some(column.map_or(*value, |other| other.max(*value)));
        }
    }
    let highest = columns.iter().flatten().copied().fold(0.0, f64::max);
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let column = |value: &Option<f64>| match value {
        None => ' ',
        Some(_) if highest <= 0.0 => BLOCKS[0],
        Some(value) => {
            let height = (value / highest * 7.0).round();
            BLOCKS[(height as usize).min(7)]
        }
    };
    columns.iter().map(column).collect()
}

fn of_gpus(of: &Gpus) -> Vec<Line<'static>> {
    let all = of.busy + of.held + of.idle + of.out;
    let width = |part: u64| {
        let cells = part * 60 / all.max(1);
        usize::try_from(cells).unwrap_or(0)
    };
    let bar = "#".repeat(width(of.busy))
        + &"=".repeat(width(of.held))
        + &".".repeat(width(of.idle))
        + &"x".repeat(width(of.out));
    vec![
        Line::from(vec![
            Span::styled("GPUS  ", STRONG),
            Span::raw(format!("{bar} {}", gpus(all))),
        ]),
        Line::raw(format!(
            "      # {} busy   = {} held back   . {} idle   x {} out of service",
            gpus(of.busy),
            gpus(of.held),
            gpus(of.idle),
            gpus(of.out)
        )),
    ]
}

fn draw_queue(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let now_ms = app.now_ms;
    let rows: Vec<Row<'static>> = app.queue().iter().map(|job| row(job, now_ms)).collect();
    if rows.is_empty() {
        let text = if app.filter.is_empty() {
            "no jobs in the queue"
        } else {
            "no job matches the filter: esc forgets it"
        };
        return frame.render_widget(Paragraph::new(text), area);
    }
    let widths = [
        Constraint::Length(9),
        Constraint::Length(18),
        Constraint::Length(11),
        Constraint::Length(9),
        Constraint::Length(5),
        Constraint::Length(8),
        Constraint::Min(10),
    ];
    // Of the chosen job there is room for the whole reason.
    let [area, below] =
        Layout::vertical([Constraint::Min(2), Constraint::Length(REASON)]).areas(area);
    let chosen = app.place.selected().unwrap_or(0);
    let chosen = app.queue().get(chosen).map(|job| remark(job));
    let text = Paragraph::new(chosen.unwrap_or_default()).wrap(Wrap { trim: true });
    frame.render_widget(text, below);
    let header = Row::new(["JOB", "NAME", "CLASS", "STATE", "GPUS", "SINCE", ""]);
    let table = Table::new(rows, widths)
        .header(header.style(STRONG))
        .highlight_symbol("> ")
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, area, &mut app.place);
}

fn remark(job: &JobSummary) -> String {
    match job.ends_in_ms {
        Some(left) if job.reason.is_empty() => format!("ends in about {}", span(left)),
        Some(_) | None => plain(&job.reason),
    }
}

fn row(job: &JobSummary, now_ms: u64) -> Row<'static> {
    Row::new([
        job.id.clone(),
        plain(&job.name),
        job.class.clone(),
        job.state.clone(),
        gpus(job.gpus_thousandths),
        span(now_ms.saturating_sub(job.since_ms)),
        remark(job),
    ])
}

fn draw_job(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    let lines = match (&app.shown.job, &app.job) {
        (Some(detail), _) => of_job(detail, app.now_ms),
        (None, Some(id)) => vec![Line::raw(format!("{id} is fetched, or no longer known"))],
        (None, None) => vec![Line::raw("choose a job on screen 2, then press enter")],
    };
    let shown = usize::from(area.height);
    let most = u16::try_from(lines.len().saturating_sub(shown)).unwrap_or(u16::MAX);
    app.scroll = app.scroll.min(most);
    frame.render_widget(Paragraph::new(lines).scroll((app.scroll, 0)), area);
}

fn of_job(detail: &JobDetail, now_ms: u64) -> Vec<Line<'static>> {
    let job = &detail.summary;
    let mut lines = Vec::new();
    let mut line = |label: &str, text: String| {
        if !text.is_empty() {
            lines.push(Line::from(vec![
                Span::styled(format!("{label:<12}"), STRONG),
                Span::raw(plain(&text)),
            ]));
        }
    };
    line("job", format!("{} `{}`", job.id, job.name));
    line(
        "for",
        format!("{}, team {}, user {}", job.class, job.team, job.user),
    );
    let since = span(now_ms.saturating_sub(job.since_ms));
    line("state", format!("{} for {since}", job.state));
    line("", job.reason.clone());
    line("on", job.allocation.clone().unwrap_or_default());
    line("GPUs", gpus(job.gpus_thousandths));
    line("steps", steps(job.step, job.steps_total));
    let loss = job.loss.map(|loss| format!("{loss:.4} nat"));
    line("loss", loss.unwrap_or_default());
    if let Some(signals) = &detail.signals {
        let tokens = signals.tokens_per_s;
        line(
            "speed",
            tokens.map_or_else(String::new, |speed| format!("{speed:.0} tokens/s")),
        );
    }
    let left = job.ends_in_ms.map(span);
    line(
        "ends in",
        left.map_or_else(String::new, |left| format!("about {left}")),
    );
    if let Some(saved) = &detail.checkpoint {
        let age = span(now_ms.saturating_sub(saved.at_ms));
        line("checkpoint", format!("step {}, {age} ago", saved.step));
    }
    for past in &detail.attempts {
        let stopped = past.stopped.as_ref();
        let stopped = stopped.map_or_else(String::new, |cause| format!(", stopped {cause}"));
        line(
            "attempt",
            format!(
                "{} on {}{stopped}: {}",
                past.id, past.allocation, past.outcome
            ),
        );
    }
    for found in &detail.findings {
        line(
            "finding",
            format!("{} {}: {}", found.rule, found.subject, found.evidence),
        );
    }
    for directive in &detail.directives {
        let answer = directive.answer.as_deref().unwrap_or("no answer yet");
        line(
            "directive",
            format!("#{} {}: {answer}", directive.id, directive.what),
        );
    }
    lines
}

#[cfg(test)]
mod tests;
