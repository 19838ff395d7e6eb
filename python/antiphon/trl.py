"""What TRL's trainers know of a shard besides its loss: rewards and their margins. It computes none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .hf import AntiphonCallback


class GatheredRewards:
    """TRL's DPO gathers the reward margin of each pair to average it: looks on while it does."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._seen: list[tuple[Any, Any]] = []
        gather = trainer.accelerator.gather

        def looked_on(tensor: Any) -> Any:
            gathered = gather(tensor)
            if torch.is_tensor(tensor) and tensor.dim() == 1:
                self._seen.append((tensor, gathered))
            return gathered

        trainer.accelerator.gather = looked_on

    def end(self) -> None:
        """Takes the look-on away again."""
        del self._trainer.accelerator.gather

    def report(self, loop: AntiphonCallback, shards: Any, step: int) -> None:
        """Reports the margin and the accuracy of each shard's pairs."""
        metrics = self._trainer._metrics["train"]
        found = {}
        for name, signal in (("rewards/margins", "reward_margin"), ("rewards/accuracies", "reward_accuracy")):
            # Recognized by its mean, which is what the trainer logs of it.
            mean = metrics[name][-1] if metrics.get(name) else None
            for mine, gathered in self._seen:
                if len(mine) == len(shards) and mean is not None and gathered.float().mean().item() == mean:
                    found[signal] = mine
        shards = torch.as_tensor(shards)
        for number in sorted(set(shards.tolist())):
            of = (shards == number).to(next(iter(found.values())).device) if found else None
            values = {signal: rewards[of].float().mean() for signal, rewards in found.items()}
            if values and number < len(loop.losses.names):
                shard = loop.losses.names[number]
                loop.job.signal(step, shard=shard, **values) if loop.job is not None else None


def report_rewards(loop: AntiphonCallback, shards: list[Any], rewards: Any, group: int, step: int) -> None:
    """Reports mean, spread and share of groups without spread of the rewards of each shard."""
    names = loop.losses.names
    by_shard: dict[str, list[Any]] = {}
    for first in range(0, len(rewards) - group + 1, group):
        shard = shards[first]
        if isinstance(shard, int) and 0 <= shard < len(names):
            shard = names[shard]
        if isinstance(shard, str):
            by_shard.setdefault(shard, []).append(rewards[first : first + group])
    for shard, groups in by_shard.items():
        of_groups = torch.stack(groups).float()
        spread = of_groups.std(1, unbiased=False)
        numbers = {
            "reward": of_groups.mean(),
            "reward_std": spread.mean(),
            "zero_variance": (spread < 1e-6).float().mean(),
        }
        if loop.job is not None:
            loop.job.signal(step, shard=shard, samples=int(of_groups.numel()), **numbers)
