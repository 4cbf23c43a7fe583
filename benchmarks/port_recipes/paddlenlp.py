"""Hugging Face's transformers against paddlenlp, tiny configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from port_recipes import Pair
from port_recipes.feeding import WORDS, cross_entropies, squares, words
from port_recipes.importing import import_paddlenlp, import_transformers

PACKAGES = ("transformers 5.23.0", "paddlenlp 3.0.0b4")
ENCODER = {
    "vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 40, "type_vocab_size": 2, "pad_token_id": 0,
}  # fmt: skip
DECODER = {
    "vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 40, "pad_token_id": 0,
}  # fmt: skip
SEQUENCES = {
    "vocab_size": WORDS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 40,
}  # fmt: skip


def model(
    name: str, config: str, both: Mapping[str, Any], ours: Mapping[str, Any] = {}, theirs: Mapping[str, Any] = {}, port: str = "",
    port_config: str = "",
) -> Callable[[], tuple[Any, Any]]:  # fmt: skip
    """Return a builder of a class of transformers and of paddlenlp, from configurations that say the same."""

    def build() -> tuple[Any, Any]:
        transformers, paddlenlp = import_transformers(), import_paddlenlp()
        reference = getattr(transformers, name)(getattr(transformers, config)(**both, **ours))
        made = getattr(paddlenlp, port_config or config)(**both, **theirs)
        return reference, getattr(paddlenlp, port or name)(made)

    return build


def own_map(reference: Any, port: Any) -> dict[str, str]:
    """Return torch's name by Paddle's, as paddlenlp's own converter has them; empty where it has none for the model."""
    port.config.architectures = [type(reference).__name__]
    try:
        maps = type(port)._get_name_mappings(port.config)  # noqa: SLF001
    except NotImplementedError:
        return {}
    return {one.target_name: one.source_name for one in maps if one.target_name and one.source_name}


def pair(
    name: str, build: Callable[[], tuple[Any, Any]], *fed: str, tokens: bool = False, **more: Any
) -> Pair:
    """Return a pair of language models: a squared error of what they return, or the cross entropy of tokens."""
    shape = more.pop("labels", (2, 12, 32))
    return Pair(
        name=name, packages=PACKAGES, build=build, inputs=words(*(fed or ("input_ids", "attention_mask")), labels=() if tokens else shape),
        losses=cross_entropies if tokens else squares, truth=own_map, **more,
    )  # fmt: skip


TEXT = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 40, "eos_token_id": 98, "bos_token_id": 97}  # fmt: skip
VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32, "patch_size": 8}  # fmt: skip
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

WORK = (
    pair("bert", model("BertModel", "BertConfig", ENCODER | STILL), "input_ids", "attention_mask", "token_type_ids"),
    pair("bert_dropout", model("BertModel", "BertConfig", ENCODER), "input_ids", "attention_mask", "token_type_ids"),
    pair("roberta", model("RobertaModel", "RobertaConfig", ENCODER | {"layer_norm_eps": 1e-5, "pad_token_id": 1})),
    pair("bart", model("BartModel", "BartConfig", SEQUENCES), "input_ids", "decoder_input_ids", "attention_mask"),
    pair(
        "opt",
        model(
            "OPTModel", "OPTConfig",
            {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 40, "word_embed_proj_dim": 32},
            {"ffn_dim": 64}, {"intermediate_size": 64},
        ),
    ),
    pair(
        "t5",
        model("T5Model", "T5Config", {"vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}),
        "input_ids", "decoder_input_ids", "attention_mask",
    ),
    pair(
        "gpt2",
        model(
            "GPT2Model", "GPT2Config", {"vocab_size": WORDS},
            {"n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 4},
            {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 40},
            "GPTModel", "GPTConfig",
        ),
        "input_ids",
    ),
    pair("clip", model("CLIPModel", "CLIPConfig", {"text_config": TEXT, "vision_config": VISION, "projection_dim": 16}), "input_ids", "pixel_values", labels=(2, 2)),
    pair("llama", model("LlamaForCausalLM", "LlamaConfig", DECODER | {"num_key_value_heads": 2}), "input_ids", tokens=True),
    pair("gemma", model("GemmaForCausalLM", "GemmaConfig", DECODER | {"num_key_value_heads": 2, "head_dim": 8}), "input_ids", tokens=True),
    pair("albert", model("AlbertModel", "AlbertConfig", ENCODER | {"embedding_size": 16}), "input_ids", "attention_mask", "token_type_ids"),
    pair("layoutlm", model("LayoutLMModel", "LayoutLMConfig", ENCODER | {"max_2d_position_embeddings": 128}), "input_ids", "bbox", "attention_mask"),
    pair("fnet", model("FNetModel", "FNetConfig", {key: value for key, value in ENCODER.items() if key != "num_attention_heads"}), "input_ids", "token_type_ids"),
)  # fmt: skip
CHECK: tuple[Pair, ...] = ()
