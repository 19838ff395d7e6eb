//! What `top` shows now, and what keys change about it. Knows no terminal.

use antiphon_server::api::model::JobSummary;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::TableState;

use super::fetch::{News, Snapshot};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Screen {
    Now,
    Queue,
    Job,
}

impl Screen {
    pub(crate) const ALL: [(Self, &'static str); 3] = [
        (Self::Now, "1 Now"),
        (Self::Queue, "2 Queue"),
        (Self::Job, "3 Job"),
    ];

    const fn next(self) -> Self {
        match self {
            Self::Now => Self::Queue,
            Self::Queue => Self::Job,
            Self::Job => Self::Now,
        }
    }
}

/// What follows from a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Go {
    On,
    /// This job is looked at from now on.
    Fetch(Option<String>),
    Out,
}

pub(crate) struct App {
    pub(crate) screen: Screen,
    pub(crate) shown: Snapshot,
    /// Why what is shown is old, if it is.
    pub(crate) trouble: Option<String>,
    /// What the queue is narrowed down to.
    pub(crate) filter: String,
    /// Whether keys are letters of the filter.
    pub(crate) typing: bool,
    /// The place in the narrowed queue.
    pub(crate) place: TableState,
    /// Lines that the job's page is scrolled by.
    pub(crate) scroll: u16,
    /// The job that is looked at.
    pub(crate) job: Option<String>,
    pub(crate) now_ms: u64,
}

impl App {
    pub(crate) fn new(shown: Snapshot) -> Self {
        Self {
            screen: Screen::Now,
            now_ms: shown.status.now_ms,
            shown,
            trouble: None,
            filter: String::new(),
            typing: false,
            place: TableState::default().with_selected(Some(0)),
            scroll: 0,
            job: None,
        }
    }

    /// Takes news in; after bad ones the last good ones stay in sight.
    pub(crate) fn take(&mut self, news: News) {
        match news {
            Ok(shown) => {
                self.shown = *shown;
                self.trouble = None;
            }
            Err(failure) => self.trouble = Some(failure.what),
        }
        self.keep_in_range();
    }

    /// The jobs that the filter leaves.
    pub(crate) fn queue(&self) -> Vec<&JobSummary> {
        let wanted = self.filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let jobs = self.shown.jobs.iter();
        jobs.filter(|job| {
            wanted.is_empty()
                || [
                    &job.id, &job.name, &job.team, &job.user, &job.class, &job.state,
                ]
                .into_iter()
                .any(|text| has(text))
        })
        .collect()
    }

    fn keep_in_range(&mut self) {
        let last = self.queue().len().saturating_sub(1);
        let place = self.place.selected().unwrap_or(0).min(last);
        self.place.select(Some(place));
    }

    pub(crate) fn key(&mut self, key: KeyEvent) -> Go {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Go::Out;
        }
        if self.typing {
            self.type_filter(key.code);
            return Go::On;
        }
        match key.code {
            KeyCode::Char('q') => return Go::Out,
            KeyCode::Char('1') => self.screen = Screen::Now,
            KeyCode::Char('2') => self.screen = Screen::Queue,
            KeyCode::Char('3') => self.screen = Screen::Job,
            KeyCode::Tab => self.screen = self.screen.next(),
            KeyCode::BackTab => self.screen = self.screen.next().next(),
            KeyCode::Char('/') => {
                self.screen = Screen::Queue;
                self.typing = true;
            }
            KeyCode::Esc if self.screen == Screen::Job => self.screen = Screen::Queue,
            KeyCode::Esc => {
                self.filter.clear();
                self.keep_in_range();
            }
            KeyCode::Enter if self.screen == Screen::Queue => return self.open(),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::PageDown => self.move_by(10),
            KeyCode::PageUp => self.move_by(-10),
            KeyCode::Home => self.move_by(i32::MIN),
            KeyCode::End => self.move_by(i32::MAX),
            _ => (),
        }
        Go::On
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) => self.filter.push(c),
            _ => (),
        }
        self.keep_in_range();
    }

    fn open(&mut self) -> Go {
        let place = self.place.selected().unwrap_or(0);
        let Some(id) = self.queue().get(place).map(|job| job.id.clone()) else {
            return Go::On;
        };
        self.screen = Screen::Job;
        self.scroll = 0;
        self.shown.job = None;
        self.job = Some(id.clone());
        Go::Fetch(Some(id))
    }

    fn move_by(&mut self, lines: i32) {
        match self.screen {
            Screen::Now => (),
            Screen::Queue => {
                let place = self.place.selected().unwrap_or(0);
                let place = i64::try_from(place).unwrap_or(0) + i64::from(lines);
                self.place.select(Some(usize::try_from(place).unwrap_or(0)));
                self.keep_in_range();
            }
            Screen::Job => {
                let scroll = i64::from(self.scroll) + i64::from(lines);
                self.scroll = u16::try_from(scroll.max(0)).unwrap_or(u16::MAX);
            }
        }
    }
}
