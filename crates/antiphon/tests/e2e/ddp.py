"""A small language model under DDP over gloo, which torchrun starts on every node: real gradients, real snapshots.

torchrun --nproc-per-node 1 ddp.py STEPS
"""

import hashlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import antiphon
from antiphon.ckpt import Snapshotter

STEPS, VOCABULARY, LENGTH, ROWS = int(sys.argv[1]), 32, 16, 4
directory = os.environ["ANTIPHON_CHECKPOINT_DIR"]

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(VOCABULARY, 32), nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, VOCABULARY))
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
snapshots = Snapshotter(directory)
position = snapshots.resume(model, optimizer)
step = position.step if position else 0
job = antiphon.attach(position.antiphon if position else None, step)
journal = open(os.path.join(directory, "journal.jsonl"), "a", buffering=1) if rank == 0 else None


def broadcast(word):
    """Gives every rank what rank 0 holds."""
    held = [word]
    dist.broadcast_object_list(held, src=0)
    return held[0]


def rows(slot):
    """Text of the slot, the same whoever asks: each letter follows from the one before it."""
    first = torch.arange(slot, slot + ROWS).unsqueeze(1) % VOCABULARY
    return (first * 7 + torch.arange(LENGTH + 1) * 3) % VOCABULARY


def save():
    """A snapshot of all ranks, durable when this returns."""
    snapshots.take(model, optimizer, step=step, slot=step * ROWS * world, job=job).wait()


ending = False
while step < STEPS and not ending:
    began = time.monotonic()
    time.sleep(0.04)  # A larger model would take as long.
    slot = step * ROWS * world
    text = rows(slot + rank * ROWS)
    logits = model(text[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    step += 1
    slot += ROWS * world
    step_ms = (time.monotonic() - began) * 1000
    job.signal(step, slot, loss=loss.item(), step_ms=step_ms, tokens=ROWS * LENGTH)
    job.progress(step, STEPS)
    if journal:
        line = {"attempt": os.environ["ANTIPHON_ATTEMPT"], "step": step, "loss": loss.item(), "world": world}
        journal.write(json.dumps(line) + "\n")
    orders = job.boundary(step, slot, broadcast)
    ending = any(order.do in ("yield", "stop") for order in orders)
    if orders or step == STEPS:
        save()
    for order in orders:
        job.applied(order, slot)
if rank == 0 and not ending:
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    with open(os.path.join(directory, "weights"), "w") as file:
        file.write(hashlib.sha256(weights).hexdigest())
job.close()
dist.destroy_process_group()
