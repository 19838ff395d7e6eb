//! Rows and columns of a text, and what they are collected into. Knows no format: the readers name columns and units.

use std::collections::HashSet;

use antiphon_types::{Class, GpuAmount, Millis};

use super::source::line_at;
use super::{BAD_ROWS_KEPT, BadRow, Format, Source, Strict, Trace, TraceError};
use crate::workload::{End, TraceJob, Work, Workload};

/// Ten thousand years: beyond it, sums of times could overflow.
const TIME_MS_MAX: f64 = 3.2e14;

/// No cluster that is planned anywhere has as many.
const GPUS_MAX: u64 = 1_000_000;

/// Above it, the sum of a large trace's GPU-time could overflow.
const GPU_TIME_MAX: u128 = 1 << 60;

/// What is read, row by row.
pub(super) struct Rows<'a> {
    source: &'a Source,
    strict: Strict,
    jobs: Vec<TraceJob>,
    names: HashSet<String>,
    bad: Vec<BadRow>,
    bad_total: u64,
}

impl<'a> Rows<'a> {
    pub(super) fn new(source: &'a Source, strict: Strict) -> Self {
        Self {
            source,
            strict,
            jobs: Vec::new(),
            names: HashSet::new(),
            bad: Vec::new(),
            bad_total: 0,
        }
    }

    /// Takes in a job, its times still by the trace's own clock, or notes why it cannot be.
    pub(super) fn take(
        &mut self,
        line: u64,
        job: Result<TraceJob, String>,
    ) -> Result<(), TraceError> {
        match job.and_then(|job| self.checked(job)) {
            Ok(job) => {
                self.jobs.push(job);
                Ok(())
            }
            Err(reason) => self.refuse(line, reason),
        }
    }

    /// Notes a row that cannot be used.
    pub(super) fn refuse(&mut self, line: u64, reason: String) -> Result<(), TraceError> {
        let row = BadRow { line, reason };
        if self.strict == Strict::On {
            return Err(TraceError::BadRow {
                path: self.source.path.clone(),
                row,
            });
        }
        self.bad_total += 1;
        if self.bad.len() < BAD_ROWS_KEPT {
            self.bad.push(row);
        }
        Ok(())
    }

    fn checked(&mut self, job: TraceJob) -> Result<TraceJob, String> {
        if let Work::Time(time) = job.work {
            let gpu_time = u128::from(job.gpus.thousandths().max(1)) * u128::from(time.as_millis());
            if gpu_time > GPU_TIME_MAX {
                return Err(format!(
                    "{} thousandths of a GPU over {} ms are more than can be counted",
                    job.gpus.thousandths(),
                    time.as_millis()
                ));
            }
        }
        if self.names.insert(job.name.clone()) {
            Ok(job)
        } else {
            Err(format!(
                "job `{}` stands in the trace twice: expected each once",
                job.name
            ))
        }
    }

    /// Sorts the jobs and sets the clock to zero at the first submission.
    pub(super) fn finish(mut self, format: Format) -> Result<Trace, TraceError> {
        if let Some((line, reason)) = &self.source.cut {
            if self.strict == Strict::On {
                return Err(TraceError::CutShort {
                    path: self.source.path.clone(),
                    line: *line,
                    reason: reason.clone(),
                });
            }
            let used = self.jobs.len();
            self.refuse(
                *line,
                format!("the file is cut short: {reason}; {used} jobs before are used"),
            )?;
        }
        let Some(first) = self.jobs.iter().map(|job| job.submitted).min() else {
            return Err(TraceError::Empty {
                path: self.source.path.clone(),
                bad_total: self.bad_total,
                first: self.bad.into_iter().next(),
            });
        };
        for job in &mut self.jobs {
            job.submitted = job.submitted.saturating_sub(first);
            job.deadline = job.deadline.map(|deadline| deadline.saturating_sub(first));
        }
        self.jobs.sort_by_key(|job| job.submitted);
        Ok(Trace {
            workload: Workload {
                name: self.source.name(),
                jobs: self.jobs,
            },
            format,
            bad: self.bad,
            bad_total: self.bad_total,
        })
    }
}

/// A job of which only the most needful is known.
pub(crate) fn job(
    line: u64,
    name: impl Into<String>,
    submitted: Millis,
    gpus: GpuAmount,
    work: Work,
) -> TraceJob {
    TraceJob {
        line,
        name: name.into(),
        team: String::new(),
        user: String::new(),
        submitted,
        gpus,
        gpu_types: Vec::new(),
        cpu_milli: None,
        memory: None,
        class: Class::Standard,
        work,
        deadline: None,
        weight_permille: 1_000,
        limit: None,
        estimate: None,
        end: End::Completed,
    }
}

/// What stands between two columns.
#[derive(Clone, Copy)]
pub(super) enum Between {
    /// Commas; texts may stand in quotes.
    Comma,
    /// `|`.
    Bar,
    /// Tabs, and no header.
    Tab,
}

/// A column: where it stands and what it is called.
#[derive(Clone, Copy)]
pub(super) struct Column {
    index: usize,
    name: &'static str,
}

impl Column {
    /// The column of a file without a header.
    pub(super) const fn at(index: usize, name: &'static str) -> Self {
        Self { index, name }
    }
}

/// The rows of a text.
pub(super) struct Table<'a> {
    source: &'a Source,
    format: &'static str,
    reader: csv::Reader<&'a [u8]>,
    body: &'a str,
    lines_before: u64,
    header: Vec<String>,
}

impl<'a> Table<'a> {
    pub(super) fn open(source: &'a Source, format: &'static str, between: Between) -> Self {
        // Lines of attribution, which a licence may ask for, stand before the header.
        let mut body = source.text.as_str();
        while body.starts_with('#') {
            body = body.split_once('\n').map_or("", |(_, rest)| rest);
        }
        let lines_before = line_at(&source.text, source.text.len() - body.len()) - 1;
        let mut builder = csv::ReaderBuilder::new();
        builder.flexible(true).trim(csv::Trim::All);
        match between {
            Between::Comma => builder.delimiter(b','),
            Between::Bar => builder.delimiter(b'|').quoting(false),
            Between::Tab => builder.delimiter(b'\t').quoting(false).has_headers(false),
        };
        let mut reader = builder.from_reader(body.as_bytes());
        let header = match between {
            Between::Tab => Vec::new(),
            Between::Comma | Between::Bar => reader.headers().map_or_else(
                |_| Vec::new(),
                |names| names.iter().map(str::to_owned).collect(),
            ),
        };
        Self {
            source,
            format,
            reader,
            body,
            lines_before,
            header,
        }
    }

    /// The columns' names.
    pub(super) fn header(&self) -> &[String] {
        &self.header
    }

    /// A column that may be missing; upper and lower case are one.
    pub(super) fn find(&self, name: &'static str) -> Option<Column> {
        let index = self
            .header
            .iter()
            .position(|there| there.eq_ignore_ascii_case(name))?;
        Some(Column { index, name })
    }

    /// A column that must be there.
    pub(super) fn need(&self, name: &'static str) -> Result<Column, TraceError> {
        self.find(name).ok_or_else(|| self.missing(name))
    }

    /// The first of these columns that is there; one must be.
    pub(super) fn need_any(&self, names: &[&'static str]) -> Result<Column, TraceError> {
        let found = names.iter().find_map(|name| self.find(name));
        found.ok_or_else(|| self.missing(names.first().copied().unwrap_or("")))
    }

    fn missing(&self, column: &'static str) -> TraceError {
        TraceError::MissingColumn {
            path: self.source.path.clone(),
            format: self.format,
            column,
            there: self.header.clone(),
        }
    }

    /// Hands each row to `take`, until that fails.
    pub(super) fn each(
        mut self,
        mut take: impl FnMut(&Row<'_>) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        let mut record = csv::StringRecord::new();
        loop {
            let begin = self.reader.position().clone();
            match self.reader.read_record(&mut record) {
                Ok(true) => take(&Row {
                    line: self.lines_before + self.line_of(&begin),
                    record: &record,
                })?,
                Ok(false) => return Ok(()),
                Err(error) => {
                    return Err(TraceError::Syntax {
                        path: self.source.path.clone(),
                        reason: error.to_string(),
                    });
                }
            }
        }
    }

    /// The parser passes over empty lines without counting them to the row that follows.
    fn line_of(&self, begin: &csv::Position) -> u64 {
        let rest = usize::try_from(begin.byte()).ok();
        let rest = rest.and_then(|at| self.body.as_bytes().get(at..));
        let ends = rest.unwrap_or_default().iter();
        let ends = ends.take_while(|byte| matches!(byte, b'\n' | b'\r'));
        begin.line() + ends.filter(|byte| **byte == b'\n').count() as u64
    }
}

/// What a number of a time column counts.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Millisecond,
    Second,
    Minute,
}

/// A row whose text held the sign that stands between columns, put together again.
pub(super) struct Joined {
    line: u64,
    record: csv::StringRecord,
}

impl Joined {
    pub(super) fn row(&self) -> Row<'_> {
        Row {
            line: self.line,
            record: &self.record,
        }
    }
}

/// One row.
pub(super) struct Row<'a> {
    pub(super) line: u64,
    record: &'a csv::StringRecord,
}

impl Row<'_> {
    /// How many columns it has.
    pub(super) fn len(&self) -> usize {
        self.record.len()
    }

    /// The row with as many columns as there should be: the surplus belongs to the text in `column`.
    pub(super) fn joined(&self, column: Column, columns: usize) -> Joined {
        let surplus = self.record.len().saturating_sub(columns);
        let mut fields: Vec<String> = Vec::new();
        for (index, field) in self.record.iter().enumerate() {
            match fields.last_mut() {
                Some(last) if index > column.index && index <= column.index + surplus => {
                    last.push('|');
                    last.push_str(field);
                }
                _ => fields.push(field.to_owned()),
            }
        }
        Joined {
            line: self.line,
            record: fields.into(),
        }
    }

    /// What stands there; empty where the row is too short.
    pub(super) fn get(&self, column: Option<Column>) -> &str {
        let found = column.and_then(|column| self.record.get(column.index));
        found.unwrap_or_default()
    }

    pub(super) fn text(&self, column: Column) -> Result<&str, String> {
        self.record.get(column.index).ok_or_else(|| {
            format!(
                "`{}` is column {}: expected at least as many, there are {}",
                column.name,
                column.index + 1,
                self.record.len()
            )
        })
    }

    /// A name that must not be empty.
    pub(super) fn name(&self, column: Column) -> Result<&str, String> {
        match self.text(column)? {
            "" => Err(format!("`{}` is empty: expected a name", column.name)),
            name => Ok(name),
        }
    }

    pub(super) fn real(&self, column: Column) -> Result<f64, String> {
        let text = self.text(column)?;
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| wrong(column.name, text, "a number"))
    }

    /// A number of things.
    pub(super) fn count(&self, column: Column) -> Result<u64, String> {
        let text = self.text(column)?;
        if let Ok(count) = text.parse() {
            return Ok(count);
        }
        // Tools that know only floats write `8.0`.
        let number = self.real(column)?;
        if number >= 0.0 && number.fract() == 0.0 && number < 9e15 {
            return Ok(rounded(number));
        }
        Err(wrong(column.name, text, "a whole number of at least 0"))
    }

    pub(super) fn time(&self, column: Column, unit: Unit) -> Result<Millis, String> {
        let text = self.text(column)?;
        let number = self.real(column)?;
        let ms = number
            * match unit {
                Unit::Millisecond => 1.0,
                Unit::Second => 1e3,
                Unit::Minute => 6e4,
            };
        if ms < 0.0 {
            return Err(wrong(column.name, text, "a time of at least 0"));
        }
        if ms > TIME_MS_MAX {
            return Err(wrong(column.name, text, "less than ten thousand years"));
        }
        Ok(Millis::from_millis(rounded(ms)))
    }

    /// Whole GPUs, none allowed.
    pub(super) fn gpus_or_none(&self, column: Column) -> Result<GpuAmount, String> {
        let count = self.count(column)?;
        whole_gpus(count).ok_or_else(|| wrong(column.name, &count.to_string(), "at most 1,000,000"))
    }

    /// Whole GPUs, at least one.
    pub(super) fn gpus(&self, column: Column) -> Result<GpuAmount, String> {
        let gpus = self.gpus_or_none(column)?;
        if gpus.is_zero() {
            return Err(wrong(
                column.name,
                self.text(column)?,
                "at least 1 GPU in a trace of this format",
            ));
        }
        Ok(gpus)
    }
}

/// So many GPUs, where there may be so many.
pub(super) fn whole_gpus(count: u64) -> Option<GpuAmount> {
    (count <= GPUS_MAX).then(|| GpuAmount::from_thousandths(count * 1_000))
}

/// A number that is known to be at least 0 and far below 2^63.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and the range is checked before"
)]
pub(crate) fn rounded(number: f64) -> u64 {
    number.round() as u64
}

/// Why a value cannot be used.
pub(super) fn wrong(column: &str, seen: &str, expected: &str) -> String {
    let seen: String = seen.chars().take(60).collect();
    if seen.is_empty() {
        format!("`{column}` is empty: expected {expected}")
    } else {
        format!("`{column}` is `{seen}`: expected {expected}")
    }
}
