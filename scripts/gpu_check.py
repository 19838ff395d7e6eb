"""Holds the planner against a real GPU: six small cases, planned and then measured, each in a process of its own.

    scripts/gpu_check.py --binary target/release/antiphon

Needs PyTorch with CUDA; models are made up from sizes, data is random, nothing is downloaded. Prints one JSON object a
case (`planned` and `measured` peak and step time), one for what the driver says, one for a snapshot in memory and its
resume; says `skipped` where there is no GPU. Takes under 6 minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

STEPS = 8
# Steps before kernels are chosen and the allocator has its blocks.
WARM_UP = 3


class Case(NamedTuple):
    """Sizes of a model, and how it is trained."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    sequence: int
    micro: int
    method: str
    recompute: str


CASES = [
    Case("full-small", 1024, 16, 16, 8, 4096, 32000, 2048, 4, "full", "none"),
    Case("full-recomputed", 2048, 16, 16, 8, 8192, 32000, 4096, 2, "full", "full"),
    Case("full-vocabulary", 1536, 12, 12, 2, 8960, 151936, 2048, 2, "full", "none"),
    Case("lora-small", 2048, 16, 32, 8, 8192, 128256, 2048, 2, "lora", "none"),
    Case("lora-recomputed", 3072, 28, 24, 8, 8192, 128256, 4096, 2, "lora", "full"),
    Case("full-long", 1024, 16, 16, 8, 4096, 32000, 16384, 1, "full", "full"),
]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--binary", type=Path, required=True)
    arguments.add_argument("--case", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.case:
        print(json.dumps(measured(Case(*json.loads(given.case)))))
        return
    try:
        import torch  # type: ignore[import-not-found]
    except ImportError:
        print("gpu-check: skipped, PyTorch is not installed")
        return
    if not torch.cuda.is_available():
        print("gpu-check: skipped, there is no GPU")
        return
    gpu = torch.cuda.get_device_name()
    print(json.dumps({"gpu": gpu, "nvml": nvml()}), flush=True)
    for case in CASES:
        command = [sys.executable, __file__, "--binary", str(given.binary), "--case", json.dumps(list(case))]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        answer: dict[str, Any] = {"case": case.name, "planned": planned(given.binary, case, gpu)}
        if ran.returncode:
            answer["failed"] = ran.stderr.strip().splitlines()[-1:]
        else:
            answer["measured"] = json.loads(ran.stdout.splitlines()[-1])
        print(json.dumps(answer), flush=True)
    print(json.dumps({"snapshot": snapshot()}), flush=True)


def config(case: Case) -> dict[str, Any]:
    """The case's model as a `config.json`."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": case.hidden,
        "num_hidden_layers": case.layers,
        "num_attention_heads": case.heads,
        "num_key_value_heads": case.kv_heads,
        "intermediate_size": case.ffn,
        "vocab_size": case.vocab,
        "tie_word_embeddings": False,
        "max_position_embeddings": case.sequence,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
    }


def planned(binary: Path, case: Case, gpu: str) -> dict[str, float] | str:
    """What the planner says of a case: GiB that tensors take, and milliseconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config(case)))
        command = [
            str(binary),
            "plan",
            "--model",
            str(path),
            "--method",
            case.method,
            "--gpu",
            gpu,
            "--gpus",
            "1",
            "--json",
        ]
        command += ["--sequence-length", str(case.sequence), "--micro-batch", str(case.micro), "--accumulation", "1"]
        command += ["--recompute", case.recompute, "--framework", "transformers", "--task", "pretrain"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if not ran.stdout:
        return ran.stderr.strip()
    answer: dict[str, Any] = json.loads(ran.stdout)
    return {"allocated_gib": answer["memory"]["allocated_bytes"] / 2**30, "step_ms": answer["step_ms"]}


def model_of(case: Case) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM  # type: ignore[import-not-found]

    sizes = {name: value for name, value in config(case).items() if name not in ("architectures", "model_type")}
    model = LlamaForCausalLM(LlamaConfig(**sizes)).to("cuda", torch.bfloat16)
    if case.recompute == "full":
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    if case.method == "lora":
        from peft import LoraConfig, get_peft_model  # type: ignore[import-not-found]

        model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))
    model.train()
    return model


def measured(case: Case) -> dict[str, float]:
    """Peak and step time of a case on this GPU."""
    import torch

    torch.manual_seed(1)
    model = model_of(case)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-5)
    tokens = torch.randint(0, case.vocab, (case.micro, case.sequence), device="cuda")
    times = []
    for step in range(STEPS):
        if step == WARM_UP:
            torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        start = time.perf_counter()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    times = sorted(times[WARM_UP:])
    return {
        "allocated_gib": torch.cuda.max_memory_allocated() / 2**30,
        "reserved_gib": torch.cuda.max_memory_reserved() / 2**30,
        "step_ms": times[len(times) // 2],
    }


def nvml() -> list[str] | str:
    """Name, memory, power limit and temperature of each GPU as the driver tells them."""
    fields = "name,memory.total,power.limit,temperature.gpu"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return ran.stdout.strip().splitlines() if ran.returncode == 0 else ran.stderr.strip()


def snapshot() -> dict[str, Any]:
    """Weights, states and gradients to host memory and back: seconds each, and whether the loss is the same."""
    import torch

    torch.manual_seed(1)
    case = CASES[0]
    model = model_of(case)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    tokens = torch.randint(0, case.vocab, (1, 512), device="cuda")
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    model(input_ids=tokens, labels=tokens).loss.backward()
    tensors = [weight.data for weight in model.parameters()]
    tensors += [weight.grad for weight in model.parameters() if weight.grad is not None]
    tensors += [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    torch.cuda.synchronize()
    start = time.perf_counter()
    saved = [tensor.detach().cpu().clone() for tensor in tensors]
    torch.cuda.synchronize()
    save_s = time.perf_counter() - start
    optimizer.step()
    with torch.no_grad():
        wanted = model(input_ids=tokens, labels=tokens).loss.item()
    start = time.perf_counter()
    for tensor, kept in zip(tensors, saved, strict=True):
        tensor.copy_(kept)
    torch.cuda.synchronize()
    resume_s = time.perf_counter() - start
    optimizer.step()
    with torch.no_grad():
        again = model(input_ids=tokens, labels=tokens).loss.item()
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors) / 2**30
    return {"gib": size, "save_s": save_s, "resume_s": resume_s, "loss_difference": abs(again - wanted)}


if __name__ == "__main__":
    main()
