"""A Transformers Trainer in a process of its own, under DDP where `RANK` and the like are set.

python hf_rank.py DIRECTORY ['{"max_steps": 8}'] [SLOW_RANK SECONDS]   # which one takes longer in each forward pass
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch

import _torch_paths  # noqa: F401
import antiphon
import tiny
from antiphon import hf


def main() -> None:
    job = antiphon.attach()
    options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    if "RANK" in os.environ:
        options["ddp_backend"] = "gloo"
    trainer = tiny.trainer(sys.argv[1], **{"max_steps": 8, **options})
    loop = hf.instrument(trainer, tiny.stream(), job=job)
    if len(sys.argv) > 3 and os.environ["RANK"] == sys.argv[3]:
        trainer.model.register_forward_pre_hook(lambda *_: time.sleep(float(sys.argv[4])))
    trainer.train()
    job.close()
    assert loop.quiet.errors == 0
    weights = torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])
    torch.save(weights, f"{sys.argv[1]}/weights-{job.environment.rank}.pt")


if __name__ == "__main__":
    main()
