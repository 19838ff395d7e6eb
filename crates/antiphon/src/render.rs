//! Tables and words for people. Standard output is data, standard error is talk; tables fit the terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use antiphon_types::{GpuAmount, Millis};
use comfy_table::{ColumnConstraint, ContentArrangement, Row, Table, presets};

/// Writes data to standard output.
pub(crate) fn print(text: &str) {
    print_bytes(text.as_bytes());
}

/// Writes a job's output to standard output as it is.
pub(crate) fn print_bytes(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) else {
        return;
    };
    // The reader went away (`antiphon jobs | head`): there is nobody left to print for. Anything else is a failure.
    let code = if error.kind() == io::ErrorKind::BrokenPipe {
        0
    } else {
        say(&format!(
            "error: standard output cannot be written: {error}"
        ));
        1
    };
    #[expect(clippy::exit, reason = "nothing is left to be done or undone")]
    std::process::exit(code);
}

/// Says a line to the person at the terminal.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints a value as JSON.
pub(crate) fn json(value: &impl serde::Serialize) {
    let text = serde_json::to_string_pretty(value).expect("answers are plain data");
    print(&format!("{text}\n"));
}

/// Width that the last column should have at least, for its sentence to say something.
const SENTENCE_WIDTH_MIN: usize = 24;

/// Prints a table, a line a row. On a terminal the last column is cut to what fits; columns named in `dispensable` are left
/// out, first to last, where even that is too wide, and so are columns that are empty.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>, dispensable: &[&str]) {
    let width = |index: usize| {
        let cells = rows.iter().map(|row| row[index].chars().count());
        cells.chain([header[index].len()]).max().unwrap_or(0) + 2
    };
    let last = header.len() - 1;
    let mut shown: Vec<usize> = (0..header.len())
        .filter(|&index| index == 0 || rows.iter().any(|row| !row[index].is_empty()))
        .collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let terminal = io::stdout()
        .is_terminal()
        .then(|| table.width())
        .flatten()
        .map(usize::from);
    if let Some(terminal) = terminal {
        for name in dispensable {
            let fixed: usize = shown
                .iter()
                .filter(|&&i| i != last)
                .map(|&i| width(i))
                .sum();
            if fixed + SENTENCE_WIDTH_MIN.min(width(last)) <= terminal {
                break;
            }
            shown.retain(|&index| header[index] != *name);
        }
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_truncation_indicator("…");
    } else {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    table.set_header(shown.iter().map(|&index| header[index]));
    for row in &rows {
        let mut cells = Row::from(shown.iter().map(|&index| plain(&row[index])));
        if terminal.is_some() {
            cells.max_height(1);
        }
        table.add_row(cells);
    }
    for (column, &index) in table.column_iter_mut().zip(&shown) {
        column.set_padding((0, 2));
        if terminal.is_some() && index != last {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    let text: String = table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect();
    print(&text);
}

/// Text from users, with nothing in it that moves a terminal's cursor or turns the direction of what follows.
pub(crate) fn plain(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars()
        .map(|c| if c.is_control() || turns(c) { ' ' } else { c })
        .collect()
}

/// GPUs as people write them.
pub(crate) fn gpus(thousandths: u64) -> String {
    GpuAmount::from_thousandths(thousandths).to_string()
}

/// How long ago.
pub(crate) fn ago(at_ms: u64) -> String {
    span(now_ms().saturating_sub(at_ms))
}

/// A span of time.
pub(crate) fn span(ms: u64) -> String {
    // Under a second is not worth a column's width.
    if ms < 1_000 {
        "0s".into()
    } else {
        Millis::from_millis(ms).to_string()
    }
}

/// How far the server's clock is ahead of this machine's, in milliseconds: ages are told by the clock that stamped them.
static AHEAD: AtomicI64 = AtomicI64::new(0);

/// Tells the time by the server's clock from now on, if it said what that shows.
pub(crate) fn go_by(server_ms: Option<u64>) {
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    if let Some(ms) = server_ms {
        AHEAD.store(
            signed(ms).saturating_sub(signed(own_ms())),
            Ordering::Relaxed,
        );
    }
}

/// The time by the clock of the server that answered last, else by this machine's.
pub(crate) fn now_ms() -> u64 {
    own_ms().saturating_add_signed(AHEAD.load(Ordering::Relaxed))
}

fn own_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// Time of day, as the machine's own clock shows it.
pub(crate) fn clock(at_ms: u64) -> String {
    let at = i64::try_from(at_ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(
        || "?".into(),
        |at| {
            at.to_zoned_datetime(jiff::tz::TimeZone::system())
                .strftime("%Y-%m-%d %H:%M:%S")
                .to_string()
        },
    )
}

/// A done share as `120/300`.
pub(crate) fn steps(step: Option<u64>, total: Option<u64>) -> String {
    match (step, total) {
        (Some(step), Some(total)) => format!("{step}/{total}"),
        (Some(step), None) => step.to_string(),
        (None, _) => String::new(),
    }
}
