"""The loss of causal language models, from which those of single samples are taken: to the last bit the model's own."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional


class CausalLoss:
    """The loss of causal language models, keeping that of each token: same sum, one cross entropy."""

    def __init__(self) -> None:
        self.kept: tuple[Any, Any] | None = None  # What each sample adds to the sum, and its number of target tokens.

    def __call__(
        self,
        logits: Any,
        labels: Any = None,
        vocab_size: int = 0,
        num_items_in_batch: Any = None,
        ignore_index: int = -100,
        shift_labels: Any = None,
        **kwargs: Any,
    ) -> Any:
        logits = logits.float()
        if shift_labels is None:
            shift_labels = functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
        targets = shift_labels.to(logits.device)
        # What `cross_entropy` is made of: the loss is the same to the last bit, and its first half is there to be used.
        log_probs, flat = functional.log_softmax(logits.reshape(-1, vocab_size), 1), targets.reshape(-1)
        reduction = "mean" if num_items_in_batch is None else "sum"
        loss = functional.nll_loss(log_probs, flat, ignore_index=ignore_index, reduction=reduction)
        by_token = functional.nll_loss(log_probs.detach(), flat, ignore_index=ignore_index, reduction="none")
        rows = len(targets)
        self.kept = by_token.reshape(rows, -1).sum(1), (targets != ignore_index).reshape(rows, -1).sum(1)
        if num_items_in_batch is None:
            return loss
        items = num_items_in_batch
        return loss / (items.to(loss.device) if torch.is_tensor(items) else items)

    def take(self) -> tuple[Any, Any] | None:
        kept, self.kept = self.kept, None
        return kept


def fuse_losses(trainer: Any) -> None:
    """Lets the model's causal loss, where it is the standard one, keep the losses of single samples."""
    from transformers.loss.loss_utils import ForCausalLMLoss
    from transformers.modeling_utils import PreTrainedModel

    trainer.causal_loss = None
    for module in trainer.model.modules():
        if isinstance(module, PreTrainedModel) and module.get_output_embeddings() is not None:
            if module.loss_function is ForCausalLMLoss:
                trainer.causal_loss = CausalLoss()
                module.loss_function = trainer.causal_loss
            return
