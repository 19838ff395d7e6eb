"""What needs the Trainer's own methods: data, losses by shard, times. Callbacks are shown none of it.

It computes nothing a second time: losses of single samples come from the cross entropy that the model computes anyway,
the gradient norm from clipping.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from .hf_loss import CausalLoss
from .torch_data import Drawn, SlotBatches, SlotRows
from .trl import GatheredRewards, report_rewards

if TYPE_CHECKING:
    from .hf import AntiphonCallback

EXIT_SIGTERM = 143


class AntiphonTrainerMixin:
    """Mixed in front of a Trainer class; `antiphon.hf.instrument` does it."""

    antiphon: AntiphonCallback
    causal_loss: CausalLoss | None = None
    micro_steps: int = 0  # Since the epoch began, as the Trainer counts them.
    _forward_ms: float = 0.0
    _counting_ms: float = 0.0
    _fused: tuple[Any, Any] | None = None  # As `CausalLoss.kept`, of the last forward.
    _is_standard: bool = False  # Whether the last loss was the model's own one.
    _watched: Any = None  # The model whose outputs are looked at, and what ends that.

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Trains, from where antiphon resumes, and once more from an older checkpoint after each rollback.

        Ends the process where the job goes on in another attempt: what follows in the script is for a finished model.
        """
        loop = self.antiphon
        if resume_from_checkpoint is None and loop.resume is not None:
            resume_from_checkpoint = str(loop.resume)
        while True:
            self.micro_steps = 0
            result = super().train(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]
            if loop.rollback_to is None:
                break
            resume_from_checkpoint = str(loop.go_back())
        if loop.stopped_by in ("yield", "superseded", "sigterm"):
            loop.job.close() if loop.job is not None else None
            sys.exit(EXIT_SIGTERM if loop.stopped_by == "sigterm" else 0)
        return result

    def get_train_dataloader(self) -> Any:
        loop, args = self.antiphon, self.args  # type: ignore[attr-defined]
        if loop.stream is None or hasattr(self, "num_generations"):
            # A trainer that generates repeats its prompts in an order of its own.
            return super().get_train_dataloader()  # type: ignore[misc]
        rows = args.per_device_train_batch_size
        unique = [loop.stream.facts(shard).get("unique_samples", 0) for shard in loop.stream.shards]
        if args.max_steps <= 0:
            if 0 in unique:
                raise ValueError("set max_steps: the stream has an endless shard, so an epoch has no end")
            step_rows = rows * args.world_size * args.gradient_accumulation_steps
            args.max_steps = max(1, round(args.num_train_epochs * sum(unique) / step_rows))
        # One epoch that holds every step even at one row a micro-step: the Trainer cuts a step short at its end.
        batches = args.max_steps * args.gradient_accumulation_steps * rows
        loop.batch.sampler = SlotBatches(loop.stream, rows, args.process_index, args.world_size, batches)
        # Not prepared by Accelerate: it would split by rank once more, and draw one batch ahead.
        return DataLoader(
            SlotRows(loop.stream, max(sum(unique), 1)),
            batch_sampler=loop.batch.sampler,
            collate_fn=self.data_collator,  # type: ignore[attr-defined]
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory and torch.cuda.is_available(),
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
        )

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        start, self._counting_ms = time.perf_counter(), 0.0
        batches, items = super().get_batch_samples(*args, **kwargs)  # type: ignore[misc]
        self.antiphon.numbers["data_wait_ms"] = (time.perf_counter() - start) * 1000 - self._counting_ms
        self._step_batches(batches)
        return batches, items

    def _get_num_items_in_batch(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        items = super()._get_num_items_in_batch(*args, **kwargs)  # type: ignore[misc]
        if self.args.world_size > 1:  # type: ignore[attr-defined]
            # The ranks add up their counts, so the first waits for the last.
            self._counting_ms = (time.perf_counter() - start) * 1000
            self.antiphon.communication.waited(self._counting_ms)
        return items

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loop = self.antiphon
        start = time.perf_counter()
        loss = super().training_step(model, inputs, *args, **kwargs)  # type: ignore[misc]
        self.micro_steps += 1
        numbers, so_far = loop.numbers, loop.numbers.get("loss")
        mine = loss.detach() if loss.requires_grad else loss
        # Not in place: the last step's sum may be on its way to the sender.
        numbers["loss"] = mine if so_far is None else so_far + mine
        waited_ms = 0.0
        if self.args.world_size > 1 and self.accelerator.sync_gradients:  # type: ignore[attr-defined]
            with loop.quiet:
                waited_ms = loop.communication.backward_ended(model)
        if not loop.on_gpu:
            # On a GPU the host's clock sees only the launches.
            backward_ms = (time.perf_counter() - start) * 1000 - self._forward_ms - waited_ms
            numbers["forward_ms"] = numbers.get("forward_ms", 0.0) + self._forward_ms
            numbers["backward_ms"] = numbers.get("backward_ms", 0.0) + max(backward_ms, 0.0)
        return loss

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        loop = self.antiphon
        shards = inputs.pop("shard", None) if isinstance(inputs, Mapping) else None  # type: ignore[attr-defined]
        if not model.training or shards is None:
            return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)  # type: ignore[misc]
        if isinstance(shards, Drawn):
            loop.consumed(shards.slot, len(shards.numbers))
            shards = shards.numbers
        rewards = GatheredRewards(self) if "completion_mask" in inputs and "labels" not in inputs else None
        self._watch(model)
        start = time.perf_counter()
        try:
            result = super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)  # type: ignore[misc]
        finally:
            if rewards is not None:
                rewards.end()
        self._forward_ms = (time.perf_counter() - start) * 1000
        with loop.quiet:
            kept = self.causal_loss.take() if self.causal_loss is not None else None
            self._is_standard = kept is not None
            kept, self._fused = kept or self._fused, None
            if rewards is not None:
                rewards.report(loop, shards, self.state.global_step + 1)  # type: ignore[attr-defined]
            elif kept is not None and len(kept[0]) == len(shards):
                loop.losses.add_sums(shards, *kept)
        return result

    def _calculate_rewards(self, inputs: Any, prompts: Any, *args: Any, **kwargs: Any) -> Any:
        """TRL's GRPO: rewards by shard, and how many of its groups teach nothing since all their rewards are equal."""
        rewards = super()._calculate_rewards(inputs, prompts, *args, **kwargs)  # type: ignore[misc]
        with self.antiphon.quiet:
            rank = self.accelerator.process_index  # type: ignore[attr-defined]
            mine = rewards[rank * len(prompts) : (rank + 1) * len(prompts)]
            weights = self.reward_weights.to(mine.device)  # type: ignore[attr-defined]
            report_rewards(
                self.antiphon,
                [row.get("shard") for row in inputs],
                (mine * weights).nansum(1),
                self.num_generations,  # type: ignore[attr-defined]
                self.state.global_step + 1,  # type: ignore[attr-defined]
            )
        return rewards

    def _get_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
        norm = super()._get_grad_norm(*args, **kwargs)  # type: ignore[misc]
        self.antiphon.numbers["grad_norm"] = norm
        return norm

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._save_checkpoint(*args, **kwargs)  # type: ignore[misc]
        # Also when Transformers saves by itself on SIGTERM, which no callback is told.
        self.antiphon.saved(self.args, self.state)  # type: ignore[attr-defined]
        return result

    def _watch(self, model: Any) -> None:
        """Looks at what the model puts out, as long as its loss is not the one that is known."""
        if self._is_standard and self._watched is not None:
            self._watched[1].remove()
            self._watched = None
        elif not self._is_standard and (self._watched is None or self._watched[0] is not model):
            self._watched = model, model.register_forward_hook(self._look)

    def _look(self, model: Any, inputs: Any, outputs: Any) -> None:
        """TRL's fused head gives log probabilities in place of logits."""
        log_probs, mask = getattr(outputs, "log_probs", None), getattr(outputs, "label_mask", None)
        if log_probs is not None and mask is not None:
            with self.antiphon.quiet:
                mask = mask.reshape(len(mask), -1)
                self._fused = -(log_probs.detach().reshape(len(mask), -1) * mask).sum(1), mask.sum(1)

    def _step_batches(self, batches: list[Any]) -> None:
        numbers = self.antiphon.numbers
        ids = [batch["input_ids"] for batch in batches if isinstance(batch, Mapping) and "input_ids" in batch]
        numbers["tokens"] = sum(part.numel() for part in ids)
        if ids:
            args = self.args  # type: ignore[attr-defined]
            numbers["micro_batch"] = ids[0].shape[0]
            numbers["rows_per_step"] = args.per_device_train_batch_size * args.gradient_accumulation_steps
        if self.antiphon.on_gpu:
            numbers["memory_peak_bytes"] = torch.cuda.max_memory_allocated()
            numbers["memory_total_bytes"] = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
