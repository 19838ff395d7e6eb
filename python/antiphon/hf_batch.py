"""Which rows each rank of a Trainer takes of a step, and how directives change that. The whole batch stays the same."""

from __future__ import annotations

from typing import Any

from .data import part_of
from .directive import Directive
from .torch_data import SlotBatches


class Batch:
    """The parts of one Trainer's batch. Without a stream to draw from it changes none."""

    def __init__(self) -> None:
        self.sampler: SlotBatches | None = None  # The stream's, once the Trainer has asked for its loader.
        self._own_rows = 0
        self._pending: tuple[Directive, int] | None = None
        self._drained: dict[int, int] = {}  # Until which step each task has less than an equal part; 0 is for good.

    def end_of(self, first: int, rows: int) -> int:
        """The first slot behind a micro-step of which this rank consumed the rows from slot `first` on."""
        of = self.sampler
        if of is None:
            return first + rows
        count = of.rows * of.world
        return first - part_of(count, of.rank, of.world, of.shares)[0] + count

    def set_rows(self, directive: Directive, trainer: Any) -> str | None:
        """Changes the rows of a micro-step as soon as that may be, or says why not."""
        if self.sampler is None or trainer.args.dataloader_num_workers:
            return "rows of a micro-step change only where a MixedStream is drawn from without loader workers"
        now = self.sampler.rows
        self._own_rows = self._own_rows or now
        rows = directive.rows or self._own_rows
        whole = now * trainer.args.gradient_accumulation_steps
        if whole % rows:
            return f"{rows} rows do not divide the {whole} rows of a step on one rank: the batch would change"
        self._pending = (directive, rows)
        return None

    def is_pending(self, directive: Directive) -> bool:
        """Whether a directive is accepted and not carried out yet."""
        return self._pending is not None and self._pending[0] is directive

    def step_ended(self, trainer: Any, step: int) -> Directive | None:
        """Ends what was for so many steps, and changes rows and accumulation together. Gives the directive of that."""
        if self._drained:
            self._end_drains(step)
        if self._pending is None or self.sampler is None:
            return None
        directive, rows = self._pending
        accumulation = self.sampler.rows * trainer.args.gradient_accumulation_steps // rows
        if trainer.micro_steps % accumulation:
            # The Trainer steps where its count is a multiple of the accumulation; a step would be cut short here.
            return None
        self.sampler.rows = trainer.args.per_device_train_batch_size = rows
        trainer.args.gradient_accumulation_steps = accumulation
        self._pending = None
        return directive

    def drain(self, directive: Directive, trainer: Any, step: int) -> str | None:
        """Gives a rank another part than an equal one, or says why not."""
        args = trainer.args
        if self.sampler is None or args.dataloader_num_workers:
            return "parts of a batch move only where a MixedStream is drawn from without loader workers"
        if directive.task >= args.world_size:
            return f"there is no rank {directive.task}: the job has {args.world_size}"
        if not (args.average_tokens_across_devices and trainer.model_accepts_loss_kwargs):
            return "this model's loss is a mean on each rank: with unequal parts it would be another"
        shares = list(self.sampler.shares) or [1.0] * args.world_size
        shares[directive.task] = directive.share
        rows = self.sampler.rows * args.world_size
        if round(rows * directive.share / sum(shares)) < 1:
            return f"of {rows} rows no whole one is left for rank {directive.task}, and it cannot step without"
        self.sampler.shares = shares
        self._drained[directive.task] = step + directive.steps if directive.steps else 0
        return None

    def _end_drains(self, step: int) -> None:
        over = [task for task, until in self._drained.items() if until and step >= until]
        for task in over:
            del self._drained[task]
            if self.sampler is not None:
                shares = list(self.sampler.shares)
                shares[task] = 1.0
                self.sampler.shares = shares
