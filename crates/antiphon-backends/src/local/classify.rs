//! What the last output of a failed command says about the cause. Knows a few lines by heart and guesses nothing:
//! what it does not know is the job's own software.

use antiphon_types::ExitClass;

/// How much output, from its end, is looked at.
pub(crate) const TAIL_BYTES: u64 = 64 * 1_024;

/// How many characters of a line are kept as evidence.
const EVIDENCE_CHARS: usize = 200;

/// Lines that say that a device or the node failed, whatever else was printed in consequence.
const DEVICE: &[&str] = &[
    "NVRM: Xid",
    "uncorrectable ECC",
    "Uncorrectable ECC",
    "cudaErrorECCUncorrectable",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "cudaErrorDevicesUnavailable",
    "has fallen off the bus",
    "GPU is lost",
    "cudaErrorNvlinkUncorrectable",
];

/// Lines that say that memory ran out, on the GPU or on the node.
const MEMORY: &[&str] = &[
    "CUDA out of memory",
    "HIP out of memory",
    "CUDA error: out of memory",
    "HIP error: out of memory",
    "OutOfMemoryError",
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "RESOURCE_EXHAUSTED: Out of memory",
    "Cannot allocate memory",
    "std::bad_alloc",
    "oom-kill",
    "Out of memory: Killed process",
    // A data loader that the kernel's out-of-memory killer took.
    "is killed by signal: Killed",
    "insufficient shared memory (shm)",
];

/// Exceptions that mean that data could not be decoded, where they stand at the start of a line as an uncaught one
/// does. In the middle of a line they are often a record that the job skipped and told about.
const DATA: &[&str] = &[
    "UnicodeDecodeError",
    "json.decoder.JSONDecodeError",
    "JSONDecodeError",
    "orjson.JSONDecodeError",
    "pyarrow.lib.ArrowInvalid",
    "datasets.exceptions.DatasetGenerationError",
    "zstandard.backend_c.ZstdError",
    "gzip.BadGzipFile",
    "zlib.error",
];

/// Lines that a broken network or device prints, but so do the survivors of a gang in which one task failed for
/// another reason. They count only where nothing above was found.
///
/// A full disk stands here: another node's scratch may have room, and somebody may make some before the next try.
/// A device-side assert does not: it is nearly always an index out of range in the job's own code.
const NETWORK: &[&str] = &[
    "unhandled system error",
    "unhandled cuda error",
    "ncclSystemError",
    "ncclRemoteError",
    "ncclUnhandledCudaError",
    "No space left on device",
    "Stale file handle",
    "Input/output error",
];

/// The cause that the end of an output names, if any, and the line that names it, or else the last line.
pub(crate) fn classify(tail: &[u8]) -> (Option<ExitClass>, String) {
    let text = String::from_utf8_lossy(tail);
    let contains = |known: &'static [&str]| {
        move |line: &str| known.iter().any(|pattern| line.contains(pattern))
    };
    // A cause is printed before its consequences, which repeat it: the first line that names it says most.
    let first = |names: &dyn Fn(&str) -> bool| text.lines().find(|line| names(line));
    let found = first(&contains(DEVICE))
        .map(|line| (ExitClass::Hardware, line))
        .or_else(|| first(&is_out_of_memory).map(|line| (ExitClass::OutOfMemory, line)))
        .or_else(|| {
            let names = |line: &str| is_exception(line, DATA);
            first(&names).map(|line| (ExitClass::DataError, line))
        })
        .or_else(|| first(&contains(NETWORK)).map(|line| (ExitClass::Hardware, line)));
    match found {
        Some((class, line)) => (Some(class), evidence(line)),
        None => {
            let last = text.lines().rev().find(|line| !line.trim().is_empty());
            (None, evidence(last.unwrap_or_default()))
        }
    }
}

/// A line without control characters, and not too long for a line of a report.
pub(crate) fn evidence(line: &str) -> String {
    printable(line, EVIDENCE_CHARS)
}

/// At most so many characters of a text, none of them a control character.
pub(crate) fn printable(text: &str, chars_max: usize) -> String {
    text.trim()
        .chars()
        .filter(|c| !c.is_control())
        .take(chars_max)
        .collect()
}

fn is_out_of_memory(line: &str) -> bool {
    MEMORY.iter().any(|pattern| line.contains(pattern)) || is_exception(line, &["MemoryError"])
}

/// Whether the line is one of these exceptions as Python prints an uncaught one, behind a rank such as `[rank3]:`.
fn is_exception(line: &str, names: &[&str]) -> bool {
    let mut line = line.trim_end();
    while let Some((_, rest)) = line
        .strip_prefix('[')
        .and_then(|inside| inside.split_once("]:"))
    {
        line = rest.strip_prefix(' ').unwrap_or(rest);
    }
    names.iter().any(|name| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: &str, class: Option<ExitClass>, line: &str) {
        assert_eq!(
            classify(output.as_bytes()),
            (class, line.to_owned()),
            "{output}"
        );
    }

    #[test]
    fn known_causes_are_named_by_their_line() {
        for (line, class) in [
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
                ExitClass::OutOfMemory,
            ),
            (
                "[rank1]: torch.OutOfMemoryError: HIP out of memory.",
                ExitClass::OutOfMemory,
            ),
            ("MemoryError", ExitClass::OutOfMemory),
            (
                "OSError: [Errno 12] Cannot allocate memory",
                ExitClass::OutOfMemory,
            ),
            (
                "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.",
                ExitClass::OutOfMemory,
            ),
            (
                "RuntimeError: CUDA error: uncorrectable ECC error encountered",
                ExitClass::Hardware,
            ),
            (
                "NVRM: Xid (PCI:0000:c7:00): 79, GPU has fallen off the bus.",
                ExitClass::Hardware,
            ),
            (
                "torch.distributed.DistBackendError: NCCL error: unhandled system error",
                ExitClass::Hardware,
            ),
            (
                "OSError: [Errno 28] No space left on device",
                ExitClass::Hardware,
            ),
            (
                "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer.",
                ExitClass::DataError,
            ),
            (
                "[rank0]: json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
                ExitClass::DataError,
            ),
            (
                "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff",
                ExitClass::DataError,
            ),
        ] {
            let output = format!("step 1\n{line}\nsrun: task 0 exited\n\n");
            check(&output, Some(class), line);
        }
    }

    #[test]
    fn the_cause_wins_over_what_its_survivors_print() {
        let output = "NCCL error: unhandled system error\n[rank0]: torch.OutOfMemoryError: CUDA out of memory\n";
        check(
            output,
            Some(ExitClass::OutOfMemory),
            "[rank0]: torch.OutOfMemoryError: CUDA out of memory",
        );
        let output = "CUDA error: uncorrectable ECC error encountered\nCUDA out of memory\n";
        check(
            output,
            Some(ExitClass::Hardware),
            "CUDA error: uncorrectable ECC error encountered",
        );
    }

    #[test]
    fn a_record_that_was_skipped_is_no_data_error() {
        let output =
            "WARNING skipped record 7: JSONDecodeError: Extra data\nValueError: bad schedule\n";
        check(output, None, "ValueError: bad schedule");
        check(
            "MemoryErrors are handled\n",
            None,
            "MemoryErrors are handled",
        );
    }

    #[test]
    fn a_device_side_assert_is_the_jobs_own_software() {
        let line = "RuntimeError: CUDA error: device-side assert triggered";
        check(line, None, line);
    }

    #[test]
    fn evidence_is_short_and_printable() {
        let (_, line) = classify(format!("\x1b[31mred\x1b[0m {}\n", "x".repeat(500)).as_bytes());
        assert!(line.starts_with("[31mred[0m xx"), "{line}");
        assert_eq!(line.chars().count(), EVIDENCE_CHARS);
        assert_eq!(classify(b"\xff\xfe\n").1, "\u{fffd}\u{fffd}");
        assert_eq!(classify(b""), (None, String::new()));
    }
}
