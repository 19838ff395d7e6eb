"""One rank of a Transformers Trainer under DDP: ``python hf_rank.py DIRECTORY``, with `RANK` and the like set."""

from __future__ import annotations

import sys

import _torch_paths  # noqa: F401
import tiny
import torch

import antiphon
from antiphon import hf


def main() -> None:
    job = antiphon.attach()
    trainer = tiny.trainer(sys.argv[1], max_steps=8, ddp_backend="gloo")
    loop = hf.instrument(trainer, tiny.stream(), job=job)
    trainer.train()
    job.close()
    assert loop.quiet.errors == 0
    weights = torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])
    torch.save(weights, f"{sys.argv[1]}/weights-{job.environment.rank}.pt")


if __name__ == "__main__":
    main()
