"""A slow rank under Transformers' Trainer: the rule names it, though the step takes every rank equally long.

    python scripts/two_way/straggler.py --binary target/release/antiphon

Two ranks (gloo, DDP) as a job of a real server. One of them, drawn from the seed, takes a fifth longer in each forward
pass; in a run beside these neither does, and nothing may be found.
"""

# The training stack is an extra: it is not there where types are checked.
# mypy: disable-error-code="import-not-found,misc"

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from server import Server

HERE = Path(__file__).resolve()
SEEDS = (1, 2, 3)
#: Windows are ten seconds long, and the first only settles that: three more and their edges.
STEPS = 800
#: What a forward pass of an equal rank takes, and how much longer the slow one's.
PACE_S, SLOWER = 0.06, 1.2
RANKS = 2


def slow_rank(seed: int) -> int | None:
    """Which rank is slow; none at seed 0."""
    return random.Random(f"straggler/{seed}").randrange(RANKS) if seed else None


def train(folder: Path, seed: int) -> None:
    """The trainer's side, on one rank."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    from llama import llama
    from transformers import Trainer, TrainingArguments

    import antiphon.hf
    from antiphon.data import MixedStream

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank = int(os.environ["RANK"])

    def collate(rows: list[Any]) -> dict[str, torch.Tensor]:
        ids = torch.stack(rows)
        return {"input_ids": ids, "labels": ids}

    rows = list(torch.randint(64, (400, 16), generator=torch.Generator().manual_seed(0)))
    args = TrainingArguments(
        output_dir=str(folder / f"out-{seed}"),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
        remove_unused_columns=False,
    )
    model = llama(64, 16, hidden=16, layers=1, heads=2, bos_token_id=None, eos_token_id=None)
    trainer = Trainer(model=model, args=args, data_collator=collate)
    pace = PACE_S * (SLOWER if rank == slow_rank(seed) else 1.0)
    model.register_forward_pre_hook(lambda *_: time.sleep(pace))
    loop = antiphon.hf.instrument(trainer, MixedStream({"all": rows}))
    trainer.train()
    if loop.job is not None:
        loop.job.close()
    if loop.quiet.errors:
        raise SystemExit(f"{loop.quiet.errors} errors of the package: see the log")


def said(binary: Path, folder: Path, seed: int) -> tuple[float | None, list[dict[str, Any]]]:
    """Seconds from the start of the attempt to the first word on a slow task, and all that was found of stragglers."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    command = [*torchrun, str(HERE), "--inside", str(folder), "--seeds", str(seed)]
    with Server(binary, folder / "straggler-server") as server:
        began = time.time() * 1000
        job = server.complete("straggler", command, folder, rules={"straggler": "observe"})
    found = [it for it in job["findings"] if it["rule"] == "straggler" and it["verdict"] in ("slow", "throttled")]
    first = [at for name, at in job["found_ms"].items() if name.startswith("straggler/") and name.endswith("/slow")]
    return (min(first) - began) / 1000 if first else None, found


def main() -> int:
    """Measures, writes the part of the page, and fails where the wrong rank is named, or none."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--binary", type=Path)
    options.add_argument("--folder", type=Path, default=Path("target/two-way"))
    options.add_argument("--seeds", type=int, nargs="+", default=[0, *SEEDS])
    options.add_argument("--inside", type=Path, help="the trainer's side, in this folder")
    given = options.parse_args()
    if given.inside:
        train(given.inside, given.seeds[0])
        return 0
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    rows, missed = [], 0
    for seed in given.seeds:
        after_s, found = said(given.binary.resolve(), folder, seed)
        slow = slow_rank(seed)
        named = sorted({it["subject"] for it in found})
        missed += named != ([] if slow is None else [f"task {slow}"])
        took = "-" if after_s is None else f"{after_s:.0f}"
        evidence = found[0]["evidence"].split(",")[0] if found else "-"
        rows.append(
            f"| {seed} | {'none' if slow is None else slow} | {', '.join(named) or 'none'} | {took} | {evidence} |"
        )
        print(rows[-1], flush=True)
    part = "\n".join(
        [
            "## A slow rank under the Trainer",
            "",
            f"Two ranks of a Trainer (gloo, DDP), {STEPS} steps; a forward pass takes {1000 * PACE_S:.0f} ms, and on",
            f"the slow rank {SLOWER - 1:.0%} more. The step takes both equally long: they are told apart by what each",
            "waits for the other, which DDP's own timers give. Seconds are from the submit, starts of Python included;",
            "a window is ten seconds, and three have to agree. (`scripts/two_way/straggler.py`)",
            "",
            "| seed | slow rank | named | after s | by what |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )
    print(part)
    (folder / "6-straggler.part.md").write_text(part, encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
