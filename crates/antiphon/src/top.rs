//! `antiphon top`: the server on one screen of a terminal, live, by keyboard. Looks only: nothing is changed from here.

mod app;
mod draw;
mod fetch;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::app::{App, Go};
use self::fetch::Fetcher;
use crate::cli::{Exit, Target};
use crate::client::Client;
use crate::failure::Failure;
use crate::render::now_ms;

/// How long a key is waited for before what was fetched meanwhile is drawn.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Shows the server until the person has seen enough.
pub(crate) fn run(target: &Target) -> Result<ExitCode, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let what = "`antiphon top` draws on a terminal, and this is none";
        return Err(Failure::new(Exit::Usage, "AP0891", what)
            .help("`antiphon jobs --json` and `GET /v1/numbers` say the same to scripts"));
    }
    let client = Client::new(target)?;
    // A server that is not there is told of as by every other command, on a terminal that is still as it was.
    let first = fetch::fetch(&client, None)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).map_err(|error| no_terminal(&error))?;
    }
    let fetcher = Fetcher::begin(client);
    // A panic gives the terminal back before it says what it is.
    let mut terminal = ratatui::try_init().map_err(|error| no_terminal(&error))?;
    let ended = show(&mut terminal, App::new(first), &fetcher, &stop);
    ratatui::restore();
    ended.map_err(|error| no_terminal(&error))?;
    Ok(ExitCode::SUCCESS)
}

fn no_terminal(error: &io::Error) -> Failure {
    Failure::new(Exit::Failed, "AP0891", "the terminal cannot be used").why(error.to_string())
}

fn show(
    terminal: &mut DefaultTerminal,
    mut app: App,
    fetcher: &Fetcher,
    stop: &AtomicBool,
) -> io::Result<()> {
    loop {
        if let Some(news) = fetcher.newest() {
            app.take(news);
        }
        app.now_ms = now_ms();
        terminal.draw(|frame| draw::draw(frame, &mut app))?;
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        if !event::poll(LOOK_EVERY)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            match app.key(key) {
                Go::On => (),
                Go::Fetch(job) => fetcher.want(job),
                Go::Out => return Ok(()),
            }
        }
    }
}
