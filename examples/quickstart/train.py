"""Trains a small language model on the text of the Python library, in dialogue with antiphon or without it.

It deliberately has one process and no accelerator: it shows a whole training loop that is resumed, redirected and
preempted without losing a bit, in a form to copy from.
"""

from __future__ import annotations

import os

# More threads would add in another order, and a resumed job would differ from an uninterrupted one in the last bit.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse
import difflib
import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

import antiphon
import checkpoint
import data
import model

log = logging.getLogger("train")

EXIT_DONE = 0
EXIT_ERROR = 1
EXIT_SIGTERM = 143
PRINT_EVERY_STEPS = 20


class UserError(Exception):
    """Something that whoever started the job can mend: what happened, why, and what to do."""

    def __init__(self, what: str, why: str, help: str) -> None:
        super().__init__(f"error: {what}\n  why:  {why}\n  help: {help}")


@dataclass
class Training:
    """Everything that a checkpoint must hold to go on as if nothing had happened."""

    params: model.Params
    moments: model.Params
    plan: data.Plan
    weights: data.Weights  # as set; a paused shard keeps its weight here, and has 0 in the plan
    paused: set[str] = field(default_factory=set)
    step: int = 0
    slot: int = 0
    antiphon: dict[str, Any] | None = None


@dataclass
class Asked:
    """What the directives of one boundary ask for beyond the data."""

    answer: list[antiphon.Directive] = field(default_factory=list)  # to be acknowledged after the checkpoint
    save: bool = False
    end: bool = False
    superseded: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job and returns its exit code."""
    options = _options(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        return train(options)
    except UserError as error:
        print(error, file=sys.stderr)
        return EXIT_ERROR


def train(options: argparse.Namespace) -> int:
    """The training loop."""
    environment = antiphon.Environment.read()
    directory = _checkpoint_directory(options, environment)
    shape = model.Shape(sequence_length=options.sequence_length)
    optimizer = model.AdamW()
    corpus = data.load_corpus()
    # A checkpoint of another seed, batch, model or corpus would load, and be wrong.
    identity = {
        "seed": options.seed,
        "batch": options.batch,
        "sequence_length": options.sequence_length,
        "corpus": corpus.digest,
    }
    training = _resume(directory, environment, identity, options) or _start(shape, options)
    losses = _open_losses(options.losses)
    attempt = environment.endpoint.attempt if environment.endpoint is not None else 0
    job = antiphon.attach(training.antiphon, training.step, environment=environment)
    recent: dict[str, list[float]] = {}

    exit_code = EXIT_DONE
    ending = training.step >= options.steps
    while not ending:
        start = time.monotonic()
        shards, rows = corpus.rows(options.seed, training.plan, training.slot, options.batch, options.sequence_length)
        row_losses, gradients = model.loss_and_gradients(training.params, shape, rows)
        grad_norm = model.update(training.params, training.moments, gradients, training.step + 1, optimizer)
        training.step += 1
        training.slot += options.batch
        loss = float(row_losses.mean())
        time.sleep(max(0.0, options.min_step_ms / 1000 - (time.monotonic() - start)))
        step_ms = (time.monotonic() - start) * 1000

        by_shard = {name: [float(x) for x, of in zip(row_losses, shards) if of == name] for name in sorted(set(shards))}
        tokens = options.batch * options.sequence_length
        job.signal(
            training.step, training.slot, loss=loss, grad_norm=grad_norm, step_ms=round(step_ms, 1), tokens=tokens
        )
        for name, of_shard in by_shard.items():
            job.signal(training.step, shard=name, loss=sum(of_shard) / len(of_shard), samples=len(of_shard))
            recent.setdefault(name, []).extend(of_shard)
        job.progress(training.step, options.steps)
        _record(losses, attempt, training, loss)
        if training.step % PRINT_EVERY_STEPS == 0 or training.step == options.steps:
            _print(training, options.steps, loss, step_ms, recent)
            recent.clear()

        asked = _obey(job, training, options)
        if asked.superseded:
            # The newer attempt owns the checkpoints now.
            log.info("step %d: superseded by a newer attempt; ending without a checkpoint", training.step)
            break
        terminating = job.terminating
        ending = terminating or asked.end or training.step >= options.steps
        due = training.step % options.checkpoint_every == 0
        if asked.save or ending or due:
            try:
                _save(job, training, directory, identity)
            except OSError as error:
                # Training goes on from memory; the last good checkpoint is still there.
                log.error(
                    "error: step %d is not saved\n  why:  %s\n  help: make room or mend the rights in `%s`; the last "
                    "good checkpoint stays valid and the next is tried at the next occasion",
                    training.step,
                    error,
                    directory,
                )
                for directive in asked.answer:
                    job.failed(directive, error)
                # A yield or stop without a checkpoint is not obeyed: the work since the last one would be lost.
                ending = terminating or training.step >= options.steps
                exit_code = EXIT_ERROR if ending else EXIT_DONE
            else:
                for directive in asked.answer:
                    job.applied(directive, training.slot)
        if terminating and training.step < options.steps:
            log.info("step %d: SIGTERM; ending", training.step)
            exit_code = EXIT_SIGTERM
    job.close()
    return exit_code


def _obey(job: antiphon.Job, training: Training, options: argparse.Namespace) -> Asked:
    """Carries out the directives about data, and collects those that a checkpoint answers."""
    asked = Asked()
    for directive in job.boundary(training.step, training.slot):
        log.info("step %d: directive %s %s: %s", training.step, directive.id, directive.do, directive.reason)
        if directive.id is None:
            asked.superseded = True
        elif directive.do in ("checkpoint", "yield", "stop"):
            asked.answer.append(directive)
            asked.save = True
            asked.end = asked.end or directive.do != "checkpoint"
        elif directive.do not in ("set_weights", "pause_shard", "resume_shard"):
            job.rejected(directive, f"this example does not carry out `{directive.do}`")
        elif options.plan is not None:
            job.rejected(directive, "this job follows the fixed plan it was started with (--plan)")
        else:
            refusal = _change_mix(training, directive)
            if refusal is None:
                job.applied(directive, training.slot)
            else:
                job.rejected(directive, refusal)
    return asked


def _change_mix(training: Training, directive: antiphon.Directive) -> str | None:
    """Enters a change of weights into the plan at the next slot, or says why it cannot be made."""
    weights, paused = dict(training.weights), set(training.paused)
    named = list(directive.weights) if directive.do == "set_weights" else [directive.shard]
    for shard in named:
        if shard not in data.SHARDS:
            near = difflib.get_close_matches(shard, data.SHARDS, n=1)
            return f"there is no shard `{shard}`" + (f"; did you mean `{near[0]}`?" if near else "")
    if directive.do == "set_weights":
        weights.update(directive.weights)
    elif directive.do == "pause_shard":
        paused.add(directive.shard)
    else:
        paused.discard(directive.shard)
    in_force = {shard: 0.0 if shard in paused else weights[shard] for shard in data.SHARDS}
    if not sum(in_force.values()) > 0:
        return "no shard would be left to draw from"
    training.weights, training.paused = weights, paused
    training.plan = training.plan.then(training.slot, in_force)
    return None


def _start(shape: model.Shape, options: argparse.Namespace) -> Training:
    params = model.new_params(shape, options.seed)
    plan = _fixed_plan(options.plan) if options.plan is not None else data.even_plan()
    return Training(params, model.new_moments(params), plan, dict(plan.at(0)))


def _resume(
    directory: Path, environment: antiphon.Environment, identity: dict[str, Any], options: argparse.Namespace
) -> Training | None:
    # An acknowledged path is relative to the checkpoint directory.
    preferred = directory / environment.resume_from if environment.resume_from else None
    loaded, passed_over = checkpoint.load_newest(directory, preferred)
    for why in passed_over:
        log.warning("passed over the checkpoint %s", why)
    if loaded is None:
        return None
    state = loaded.state
    if state["identity"] != identity:
        differing = sorted(key for key in identity if identity[key] != state["identity"].get(key))
        raise UserError(
            f"`{loaded.path}` belongs to another job",
            f"it was saved with another {', '.join(differing)}",
            "pass the options that it was saved with, or another --checkpoint-dir",
        )
    log.info("resumed from %s at step %d, slot %d", loaded.path, state["step"], state["slot"])
    moments = {name: value for name, value in loaded.arrays.items() if name.startswith(("first.", "second."))}
    return Training(
        params={name: value for name, value in loaded.arrays.items() if name not in moments},
        moments=moments,
        plan=_fixed_plan(options.plan) if options.plan is not None else data.Plan.from_json(state["plan"]),
        weights=state["weights"],
        paused=set(state["paused"]),
        step=state["step"],
        slot=state["slot"],
        antiphon=state["antiphon"],
    )


def _save(job: antiphon.Job, training: Training, directory: Path, identity: dict[str, Any]) -> None:
    state = {
        "identity": identity,
        "step": training.step,
        "slot": training.slot,
        "plan": training.plan.to_json(),
        "weights": training.weights,
        "paused": sorted(training.paused),
        "antiphon": job.state(),
    }
    # Beside the checkpoints for `--plan`: another job can repeat this one without being directed.
    checkpoint.write_durably(directory / "plan.json", json.dumps(training.plan.to_json(), indent=1).encode())
    saved = checkpoint.save(directory, training.step, {**training.params, **training.moments}, state)
    job.checkpointed(saved.step, saved.path.name, saved.bytes, saved.save_ms, saved.manifest)


def _checkpoint_directory(options: argparse.Namespace, environment: antiphon.Environment) -> Path:
    directory = Path(options.checkpoint_dir or environment.checkpoint_dir or "checkpoints")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / f".writable.{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"checkpoints cannot be written to `{directory}`",
            str(error),
            "pass a writable directory with --checkpoint-dir, or set `dir` in `[checkpoint]` of the job file",
        ) from error
    return directory


def _fixed_plan(path: str) -> data.Plan:
    try:
        return data.Plan.from_json(json.loads(Path(path).read_bytes()))
    except (OSError, ValueError) as error:
        raise UserError(
            f"`{path}` is no plan to follow",
            str(error),
            "pass the `plan.json` that another job of this example left in its checkpoint directory",
        ) from error


def _open_losses(path: str | None) -> TextIO | None:
    if path is None:
        return None
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # Line by line: a killed attempt keeps every step that it finished.
        return open(path, "a", buffering=1, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"losses cannot be written to `{path}`", str(error), "pass another file with --losses"
        ) from error


def _record(losses: TextIO | None, attempt: int, training: Training, loss: float) -> None:
    if losses is None:
        return
    try:
        losses.write(
            json.dumps(
                {
                    "attempt": attempt,
                    "step": training.step,
                    "slot": training.slot,
                    "loss": loss,
                    "at_ms": time.time_ns() // 1_000_000,
                }
            )
            + "\n"
        )
    except OSError as error:
        log.warning("step %d: its loss is not recorded: %s", training.step, error)


def _print(training: Training, steps: int, loss: float, step_ms: float, recent: dict[str, list[float]]) -> None:
    shards = "  ".join(f"{name} {np.mean(recent[name]):.2f}" for name in sorted(recent))
    print(f"step {training.step:>5}/{steps}  loss {loss:.3f}  {step_ms:.0f} ms  {shards}", flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small language model on the text of the Python library.")
    parser.add_argument("--steps", type=_at_least_one, default=300, help="steps in all (default: 300)")
    parser.add_argument("--batch", type=_at_least_one, default=20, help="rows, that is slots, a step (default: 20)")
    parser.add_argument("--sequence-length", type=_at_least_one, default=64, help="bytes a row (default: 64)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the rows drawn (default: 0)")
    parser.add_argument("--checkpoint-dir", help="default: $ANTIPHON_CHECKPOINT_DIR, else `checkpoints`")
    parser.add_argument("--checkpoint-every", type=_at_least_one, default=50, help="steps (default: 50)")
    parser.add_argument("--losses", metavar="FILE", help="append one JSON line a step")
    parser.add_argument("--plan", metavar="FILE", help="follow this plan of weights and no directive about data")
    parser.add_argument("--min-step-ms", type=float, default=0.0, help="wait out each step to this length (default: 0)")
    return parser.parse_args(arguments)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
