"""The causal language model of the experiments, in the sizes that each of them wants."""

# The training stack is an extra: it is not there where types are checked.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from typing import Any

from transformers import LlamaConfig, LlamaForCausalLM


def llama(vocabulary: int, row_tokens: int, hidden: int, layers: int, heads: int, **more: Any) -> LlamaForCausalLM:
    """An untrained one, by PyTorch's own seed."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=more.pop("intermediate", 2 * hidden),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=row_tokens,
        **more,
    )
    return LlamaForCausalLM(config)
