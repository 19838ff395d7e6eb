"""The published comparisons as data: traces, policies, what each may know, and the figures that were published."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One policy of a comparison."""

    policy: str
    knowledge: str
    published: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """One table of the page."""

    title: str
    trace: str
    lines: tuple[Line, ...]
    flags: tuple[str, ...] = ()
    note: str = ""
    #: What its plots are called; none where it has no name.
    name: str = ""
    #: Policies whose distributions are drawn, all with true run times known.
    drawn: tuple[str, ...] = ()


def muri(trace: str, las: str, themis: str, srsf: str, srtf: str) -> Comparison:
    """Muri's Philly-derived traces on 8 nodes of 8 GPUs."""
    return Comparison(
        title=f"Muri {trace}: 8 nodes of 8 GPUs, 15 s a first start, 30 s a later one",
        trace=f"muri/{trace}.csv.gz",
        lines=(
            Line("antiphon", "none"),
            Line("las", "none", las),
            Line("themis", "durations", themis),
            Line("antiphon", "progress"),
            Line("antiphon", "progress", flags=("--noise",)),
            Line("antiphon", "durations"),
            Line("srsf", "durations", srsf),
            Line("srtf", "durations", srtf),
            Line("lucid", "durations"),
            Line("easy-backfill", "durations"),
            Line("fifo", "none"),
        ),
        note="The published runs charge starts at more events than there are starts; with their accounts the re-made "
        "policies but Themis hit the published figures (`crates/antiphon-sim/tests/peers.rs`).",
        name=f"muri-{trace}",
        drawn=("antiphon", "srsf", "las", "themis", "fifo"),
    )


def gavel(name: str, title: str, trace: str, peers: tuple[Line, ...], cluster: str) -> Comparison:
    """Gavel's traces, in its rounds of 360 s with free preemption and event by event with 30 s a restart."""
    ours = tuple(Line("antiphon", knowledge) for knowledge in ("none", "progress", "durations"))
    events = ("--rounds", "0s", "--resize-cost", "30s")
    apart = (Line("antiphon", "progress", flags=events),)
    note = (
        "All know the table of throughputs; `gavel-ftf`, `gavel-makespan` and `hetero-srtf` also know the steps to do. "
        "The published runs do not slow jobs that span servers; here they are slowed as the table says."
    )
    return Comparison(title, trace, ours + peers + apart, ("--cluster", cluster), note, name)


def pollux(load: str, folder: str, goodput: str, tiresias: str) -> Comparison:
    """The sixth of Pollux's eight workloads, at one load."""
    return Comparison(
        title=f"Pollux workload-6 at load {load} on 64 T4, 30 s a start",
        trace=f"pollux/{folder}/workload-6.csv.gz",
        lines=(
            Line("antiphon", "progress"),
            Line("pollux-like", "none", goodput),
            Line("tiresias-tuned", "none", tiresias),
        ),
        note="antiphon and Tiresias keep each job's tuned size; the bound holds for these. `pollux-like` knows the "
        "profiles and changes sizes every 60 s; over all eight workloads it is within 2 % of the published means "
        "(`crates/antiphon-sim/tests/peers.rs`).",
        name=f"pollux-{load.replace('.', '-')}",
    )


COMPARISONS = (
    muri("trace1", "3,330,000", "1,823,000", "980,000", "1,371,000"),
    muri("trace3", "347,000", "397,000", "185,000", "193,000"),
    gavel(
        "gavel-continuous",
        "Gavel, continuous, 96 jobs: 8 V100, 16 P100, 24 K80; rounds of 360 s",
        "gavel/physical_cluster/max_min_fairness.trace.gz",
        (
            Line("gavel-las", "none", "14,623"),
            Line("gavel-las-blind", "none", "19,989"),
            Line("gavel-fifo", "none", "19,527"),
            Line("gandiva-fair", "none"),
            Line("lucid", "none"),
            Line("hetero-srtf", "durations"),
        ),
        "gavel-testbed",
    ),
    gavel(
        "gavel-static",
        "Gavel, static, 100 jobs, the same cluster",
        "gavel/physical_cluster/minimize_makespan.trace.gz",
        (
            Line("gavel-las", "none", "35,659 (makespan 68,522)"),
            Line("gavel-makespan", "durations", "63,775 (makespan 64,721)"),
        ),
        "gavel-testbed",
    ),
    gavel(
        "gavel-generated",
        "Gavel, generated, 400 jobs: 36 V100, 36 P100, 36 K80, one a server",
        "gavel/generated/continuous_multigpu_lam1200_seed0_400jobs.trace.gz",
        (
            Line("gavel-las", "none", "51,469"),
            Line("gavel-ftf", "none", "52,941"),
            Line("gavel-las-blind", "none", "71,098"),
        ),
        "gavel-108",
    ),
    Comparison(
        title="Shockwave, 120 jobs on 32 GPUs, rounds of 120 s, 20 s a resume (rigid)",
        trace="shockwave/traces/120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace.gz",
        lines=(
            Line("antiphon", "progress", "Shockwave: 9,958 (makespan 24,197)"),
            Line("gavel-las-blind", "none", "11,274 (makespan 33,208)"),
        ),
        name="shockwave",
    ),
    pollux("0.5", "workloads-0.5", "1,288", "1,827"),
    pollux("1", "workloads", "2,446", "3,470"),
    pollux("1.5", "workloads-1.5", "3,474", "5,830"),
    pollux("2", "workloads-2.0", "5,105", "10,255"),
    Comparison(
        title="ElasticFlow `elasticVpollux_e`, 195 jobs on 64 T4, rounds of 60 s",
        trace="elasticflow/traces/elasticVpollux_e.csv.gz",
        lines=(
            Line("antiphon", "durations", "ElasticFlow: 72.8 % of deadlines"),
            Line("edf", "none", "11.8 % of deadlines"),
        ),
        note="antiphon keeps the GPUs that a job asks for. EDF scales each job out as far as it was measured, as in "
        "the published run, where scaling is free.",
        name="elasticflow",
    ),
)

FGD = (
    ("default", "95.39", "93.08", "87.47"),
    ("gpushare40", "94.15", "91.69", "86.00"),
    ("gpushare100", "86.90", "85.01", "79.44"),
    ("gpuspec33", "94.55", "93.09", "86.46"),
    ("multigpu50", "97.18", "95.74", "90.27"),
    ("cpu250", "93.41", "91.45", "80.42"),
)
