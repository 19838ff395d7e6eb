"""A small causal transformer over bytes with its own backward pass, and AdamW. Knows no files and no antiphon.

Everything is a plain function over a dictionary of arrays, in float32 for training and float64 for the gradient check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any  # numpy's own generic type differs between the versions that this example runs on
Params = dict[str, Array]

VOCABULARY = 256
LAYER_NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class Shape:
    """The size of the model."""

    sequence_length: int = 64
    width: int = 64
    heads: int = 2
    layers: int = 2


@dataclass(frozen=True)
class AdamW:
    """The optimizer's settings; the rate is constant after the warm-up: no loss depends on the number of steps."""

    rate: float = 3e-3
    warmup_steps: int = 20
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-8
    decay: float = 0.01
    clip: float = 1.0


def new_params(shape: Shape, seed: int, dtype: str = "float32") -> Params:
    """Random weights of a scale at which the first loss is near ln 256."""
    random = np.random.Generator(np.random.Philox(seed))
    width = shape.width

    def matrix(rows: int, columns: int, scale: float) -> Array:
        return (random.standard_normal((rows, columns)) * scale).astype(dtype)

    params: Params = {
        "token": matrix(VOCABULARY, width, 0.1),
        "position": matrix(shape.sequence_length, width, 0.1),
        "head": matrix(width, VOCABULARY, 0.02),
        "final.gain": np.ones(width, dtype),
        "final.bias": np.zeros(width, dtype),
    }
    for layer in range(shape.layers):
        params.update(
            {
                f"{layer}.attention.gain": np.ones(width, dtype),
                f"{layer}.attention.bias": np.zeros(width, dtype),
                f"{layer}.attention.qkv": matrix(width, 3 * width, width**-0.5),
                f"{layer}.attention.out": matrix(width, width, 0.5 * width**-0.5),
                f"{layer}.mlp.gain": np.ones(width, dtype),
                f"{layer}.mlp.bias": np.zeros(width, dtype),
                f"{layer}.mlp.up": matrix(width, 4 * width, width**-0.5),
                f"{layer}.mlp.up_bias": np.zeros(4 * width, dtype),
                f"{layer}.mlp.down": matrix(4 * width, width, 0.25 * width**-0.5),
            }
        )
    return params


def loss_and_gradients(params: Params, shape: Shape, rows: Array) -> tuple[Array, Params]:
    """The mean loss of each row of sequence_length + 1 bytes, in nats a byte, and the gradients of their mean."""
    inputs, targets = rows[:, :-1], rows[:, 1:]
    batch, length = inputs.shape
    caches: list[Any] = []

    x = params["token"][inputs] + params["position"]
    for layer in range(shape.layers):
        normed, norm_cache = _norm(x, params[f"{layer}.attention.gain"], params[f"{layer}.attention.bias"])
        mixed, attention_cache = _attention(normed, params, layer, shape.heads)
        x = x + mixed
        caches += [norm_cache, attention_cache]
        normed, norm_cache = _norm(x, params[f"{layer}.mlp.gain"], params[f"{layer}.mlp.bias"])
        up = normed @ params[f"{layer}.mlp.up"] + params[f"{layer}.mlp.up_bias"]
        active = np.maximum(up, 0)
        x = x + active @ params[f"{layer}.mlp.down"]
        caches += [norm_cache, (normed, active)]
    normed, final_cache = _norm(x, params["final.gain"], params["final.bias"])
    logits = normed @ params["head"]
    probabilities = _softmax(logits)
    picked = np.take_along_axis(probabilities, targets[..., None], axis=-1)[..., 0]
    losses = -np.log(np.maximum(picked, 1e-30)).mean(axis=1)

    gradients: Params = {}
    d_logits = probabilities
    np.put_along_axis(d_logits, targets[..., None], picked[..., None] - 1, axis=-1)
    d_logits /= batch * length
    gradients["head"] = _weight_gradient(normed, d_logits)
    d_x = _norm_backward(d_logits @ params["head"].T, final_cache, gradients, "final")
    for layer in reversed(range(shape.layers)):
        normed, active = caches.pop()
        d_active = d_x @ params[f"{layer}.mlp.down"].T
        gradients[f"{layer}.mlp.down"] = _weight_gradient(active, d_x)
        d_active *= active > 0
        gradients[f"{layer}.mlp.up"] = _weight_gradient(normed, d_active)
        gradients[f"{layer}.mlp.up_bias"] = d_active.sum(axis=(0, 1))
        d_normed = d_active @ params[f"{layer}.mlp.up"].T
        d_x = d_x + _norm_backward(d_normed, caches.pop(), gradients, f"{layer}.mlp")
        d_normed = _attention_backward(d_x, caches.pop(), params, gradients, layer)
        d_x = d_x + _norm_backward(d_normed, caches.pop(), gradients, f"{layer}.attention")
    gradients["position"] = d_x.sum(axis=0)
    # A product with the one-hot inputs adds in a fixed order, and is faster than numpy's scattered addition.
    one_hot = (np.arange(VOCABULARY)[:, None] == inputs.reshape(1, -1)).astype(d_x.dtype)
    gradients["token"] = one_hot @ d_x.reshape(batch * length, -1)
    return losses, gradients


def new_moments(params: Params) -> Params:
    """AdamW's state before the first step."""
    return {f"{kind}.{name}": np.zeros_like(value) for kind in ("first", "second") for name, value in params.items()}


def update(params: Params, moments: Params, gradients: Mapping[str, Array], step: int, optimizer: AdamW) -> float:
    """Takes AdamW's step number `step`, counted from 1, in place. Returns the gradient's norm before clipping."""
    norm = float(np.sqrt(sum(float(np.vdot(gradient, gradient)) for gradient in gradients.values())))
    clip = min(1.0, optimizer.clip / (norm + 1e-12))
    rate = optimizer.rate * min(1.0, step / optimizer.warmup_steps)
    correct1, correct2 = 1 - optimizer.beta1**step, 1 - optimizer.beta2**step
    for name, value in params.items():
        gradient = gradients[name] * clip
        first, second = moments[f"first.{name}"], moments[f"second.{name}"]
        first += (1 - optimizer.beta1) * (gradient - first)
        second += (1 - optimizer.beta2) * (gradient * gradient - second)
        if value.ndim == 2:
            value *= 1 - rate * optimizer.decay
        value -= (rate / correct1) * first / (np.sqrt(second / correct2) + optimizer.epsilon)
    return norm


def _norm(x: Array, gain: Array, bias: Array) -> tuple[Array, Any]:
    centered = x - x.mean(axis=-1, keepdims=True)
    scale = 1 / np.sqrt((centered * centered).mean(axis=-1, keepdims=True) + LAYER_NORM_EPSILON)
    unit = centered * scale
    return unit * gain + bias, (unit, scale, gain)


def _norm_backward(d_out: Array, cache: Any, gradients: Params, name: str) -> Array:
    unit, scale, gain = cache
    gradients[f"{name}.gain"] = (d_out * unit).sum(axis=(0, 1))
    gradients[f"{name}.bias"] = d_out.sum(axis=(0, 1))
    d_unit = d_out * gain
    along_unit = (d_unit * unit).mean(axis=-1, keepdims=True)
    return (d_unit - d_unit.mean(axis=-1, keepdims=True) - unit * along_unit) * scale


def _attention(x: Array, params: Params, layer: int, heads: int) -> tuple[Array, Any]:
    batch, length, width = x.shape
    qkv = (x @ params[f"{layer}.attention.qkv"]).reshape(batch, length, 3, heads, width // heads)
    query, key, value = qkv.transpose(2, 0, 3, 1, 4)
    # A Python float, as numpy 1 would widen float32 for a numpy one.
    scores = (query @ key.swapaxes(-1, -2)) * float((width // heads) ** -0.5)
    scores[..., np.triu(np.ones((length, length), bool), 1)] = -1e9
    weights = _softmax(scores)
    merged = (weights @ value).transpose(0, 2, 1, 3).reshape(batch, length, width)
    return merged @ params[f"{layer}.attention.out"], (x, query, key, value, weights, merged)


def _attention_backward(d_out: Array, cache: Any, params: Params, gradients: Params, layer: int) -> Array:
    x, query, key, value, weights, merged = cache
    batch, length, width = x.shape
    heads = query.shape[1]
    gradients[f"{layer}.attention.out"] = _weight_gradient(merged, d_out)
    d_merged = d_out @ params[f"{layer}.attention.out"].T
    d_mixed = d_merged.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)
    d_value = weights.swapaxes(-1, -2) @ d_mixed
    d_weights = d_mixed @ value.swapaxes(-1, -2)
    d_scores = weights * (d_weights - (d_weights * weights).sum(axis=-1, keepdims=True))
    d_scores *= float((width // heads) ** -0.5)
    d_qkv = np.stack([d_scores @ key, d_scores.swapaxes(-1, -2) @ query, d_value])
    d_qkv = d_qkv.transpose(1, 3, 0, 2, 4).reshape(batch, length, 3 * width)
    gradients[f"{layer}.attention.qkv"] = _weight_gradient(x, d_qkv)
    return d_qkv @ params[f"{layer}.attention.qkv"].T


def _softmax(scores: Array) -> Array:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    exponentials /= exponentials.sum(axis=-1, keepdims=True)
    return exponentials


def _weight_gradient(inputs: Array, d_outputs: Array) -> Array:
    return inputs.reshape(-1, inputs.shape[-1]).T @ d_outputs.reshape(-1, d_outputs.shape[-1])
