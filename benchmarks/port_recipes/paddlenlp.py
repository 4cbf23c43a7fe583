"""Hugging Face's transformers against paddlenlp, tiny configurations."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from port_recipes import Difference, Pair
from port_recipes.feeding import WORDS, cross_entropies, replace_forward, squares, words
from port_recipes.importing import import_paddlenlp, import_transformers

PACKAGES = ("transformers 5.23.0", "paddlenlp 3.0.0b4")
ENCODER = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "pad_token_id": 0,
}
DECODER = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}
SEQUENCES = {
    "vocab_size": WORDS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 40,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
}


def model(
    name: str,
    config: str,
    both: Mapping[str, Any],
    ours: Mapping[str, Any] = {},
    theirs: Mapping[str, Any] = {},
    port: str = "",
    port_config: str = "",
) -> Callable[[], tuple[Any, Any]]:
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
        maps = type(port)._get_name_mappings(port.config)
    except NotImplementedError:
        return {}
    return {one.target_name: one.source_name for one in maps if one.target_name and one.source_name}


def pair(name: str, build: Callable[[], tuple[Any, Any]], *fed: str, tokens: bool = False, **more: Any) -> Pair:
    """Return a pair of language models: a squared error of what they return, or the cross entropy of tokens."""
    shape = more.pop("labels", (2, 12, 32))
    return Pair(
        name=name,
        packages=PACKAGES,
        build=build,
        inputs=words(*(fed or ("input_ids", "attention_mask")), labels=() if tokens else shape),
        losses=cross_entropies if tokens else squares,
        **{"truth": own_map, **more},
    )


TEXT = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "eos_token_id": 98,
    "bos_token_id": 97,
}
VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def transform_samples(reference: Any, port: Any) -> None:
    """Let FNet transform tokens and features of each sample, as the reference does."""
    del reference
    import paddle

    for one in port.sublayers():
        if type(one).__name__ == "FNetBasicFourierTransform":
            one.fourier_transform = lambda hidden: paddle.fft.fftn(hidden, axes=(1, 2))


def use_new_gelu(reference: Any, port: Any) -> None:
    """Give ALBERT's layers the tanh form of gelu that transformers has by default."""
    del reference
    import_paddlenlp()
    from paddlenlp.transformers.activations import NewGELUActivation

    for one in port.sublayers():
        if type(one).__name__ == "AlbertLayer":
            one.activation = NewGELUActivation()


def hide_positions(reference: Any, port: Any) -> None:
    """Give OPT's hidden tokens the position 1, as the reference does."""
    del reference
    import paddle

    def forward(layer: Any, attention_mask: Any, past_key_values_length: int = 0) -> Any:
        mask = paddle.cast(attention_mask, "int64")
        ids = (paddle.cumsum(mask, axis=-1) * mask - 1)[:, past_key_values_length:]
        return paddle.nn.Embedding.forward(layer, ids + layer.offset)

    replace_forward(port.embeddings.position_embeddings, forward)


def use_tanh_gelu(reference: Any, port: Any) -> None:
    """Give Gemma's MLP the tanh form of gelu, as the reference's has it."""
    del reference
    import paddle

    def forward(layer: Any, hidden: Any) -> Any:
        gate = paddle.nn.functional.gelu(layer.gate_proj(hidden), approximate=True)
        return layer.down_proj(gate * layer.up_proj(hidden))

    for one in port.sublayers():
        if type(one).__name__ == "GemmaMLP":
            replace_forward(one, forward)


def project_pooled(reference: Any, port: Any) -> None:
    """Let CLIP return what its encoders pooled after the projections, as the reference does."""
    del reference
    import paddle

    def project(model: Any, given: Any, found: Any) -> Any:
        del given
        pairs = (("text_model_output", model.text_projection), ("vision_model_output", model.vision_projection))
        for name, matrix in pairs:
            found[name]["pooler_output"] = paddle.matmul(found[name]["pooler_output"], matrix)
        return found

    port.register_forward_post_hook(project)


def project_each(reference: Any, port: Any) -> None:
    """Let CLIPSeg, which returns tuples, do the same."""
    del reference

    def project(model: Any, given: Any, found: Any) -> Any:
        del given
        matrices = model.text_projection.weight, model.visual_projection.weight
        pooled = ((one[0], one[1] @ matrix, *one[2:]) for one, matrix in zip(found[4:6], matrices, strict=True))
        return (*found[:4], *pooled)

    port.register_forward_post_hook(project)


def keep_embeddings(reference: Any, port: Any) -> None:
    """Take the dropout after OPT's embeddings away: the reference has none."""
    del reference
    port.embeddings.dropout.p = 0.0


def give_padding_rows(reference: Any, port: Any) -> None:
    """Let embeddings give the row of their padding index, as torch's do; Paddle's give zeros."""
    del reference
    for one in port.sublayers():
        if type(one).__name__ == "Embedding":
            one._padding_idx = None


PADDING = Difference(
    message="the embedding gives zeros at its padding index, transformers' gives the row", remove=give_padding_rows
)

POOLED = Difference(message="pooler_output of both encoders is what is before the projection", remove=project_pooled)
WORK = (
    pair("bert", model("BertModel", "BertConfig", ENCODER | STILL), "input_ids", "attention_mask", "token_type_ids"),
    pair("bert_dropout", model("BertModel", "BertConfig", ENCODER), "input_ids", "attention_mask", "token_type_ids"),
    pair("roberta", model("RobertaModel", "RobertaConfig", ENCODER | {"layer_norm_eps": 1e-5, "pad_token_id": 1}), differences=(PADDING,)),
    pair("bart", model("BartModel", "BartConfig", SEQUENCES), "input_ids", "decoder_input_ids", "attention_mask"),
    pair(
        "opt",
        model(
            "OPTModel", "OPTConfig",
            {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 40, "word_embed_proj_dim": 32},
            {"ffn_dim": 64}, {"intermediate_size": 64},
        ),
        differences=(
            Difference(message="hidden tokens count as positions", remove=hide_positions),
            Difference(message="dropout after the embeddings", remove=keep_embeddings),
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
        hints={
            "h.*.attn.c_attn.weight": "T(decoder.layers.*.self_attn.q_proj.weight + decoder.layers.*.self_attn.k_proj.weight + decoder.layers.*.self_attn.v_proj.weight)",
            "h.*.attn.c_attn.bias": "decoder.layers.*.self_attn.q_proj.bias + decoder.layers.*.self_attn.k_proj.bias + decoder.layers.*.self_attn.v_proj.bias",
        },
    ),
    pair("clip", model("CLIPModel", "CLIPConfig", {"text_config": TEXT, "vision_config": VISION, "projection_dim": 16}), "input_ids", "pixel_values", labels=(2, 2),
         differences=(POOLED,)),
    pair("llama", model("LlamaForCausalLM", "LlamaConfig", DECODER | {"num_key_value_heads": 2}), "input_ids", tokens=True),
    pair("gemma", model("GemmaForCausalLM", "GemmaConfig", DECODER | {"num_key_value_heads": 2, "head_dim": 8}), "input_ids", tokens=True,
         differences=(Difference(message="the MLP's gelu is the exact one, transformers' the tanh form", remove=use_tanh_gelu),)),
    pair("albert", model("AlbertModel", "AlbertConfig", ENCODER | {"embedding_size": 16}), "input_ids", "attention_mask", "token_type_ids",
         differences=(PADDING, Difference(message="hidden_act is gelu by default, transformers' is gelu_new", remove=use_new_gelu))),
    pair("layoutlm", model("LayoutLMModel", "LayoutLMConfig", ENCODER | {"max_2d_position_embeddings": 128}), "input_ids", "bbox", "attention_mask", differences=(PADDING,)),
    pair("fnet", model("FNetModel", "FNetConfig", {key: value for key, value in ENCODER.items() if key != "num_attention_heads"}), "input_ids", "token_type_ids",
         differences=(PADDING, Difference(message="the Fourier transform goes over the batch, too", remove=transform_samples))),
)  # fmt: skip


def mask_finitely(reference: Any, port: Any) -> None:
    """Let DeBERTa's rows that are masked whole be even, as the reference's are, instead of NaN."""
    del reference
    import paddle

    def softmax_with_mask(scores: Any, mask: Any, axis: int) -> Any:
        least = paddle.full(scores.shape, paddle.finfo(scores.dtype).min, scores.dtype)
        return paddle.nn.functional.softmax(paddle.where(mask.astype("bool"), scores, least), axis=axis)

    vars(sys.modules[type(port).__module__])["softmax_with_mask"] = softmax_with_mask


def as_bart(reference: Any, port: Any) -> dict[str, str]:
    """Return torch's name by Paddle's for a model with BART's names, for which paddlenlp has no map."""
    from paddlenlp.transformers import BartConfig, BartModel

    size = {"encoder_layers": 2, "decoder_layers": 2}
    maps = BartModel._get_name_mappings(BartConfig(**size, architectures=["BartModel"]))
    named = {one.target_name: one.source_name for one in maps}
    for side in ("encoder", "decoder"):
        for end in ("weight", "bias"):
            named[f"{side}.{side}.norm.{end}"] = f"{side}.layer_norm.{end}"
            named[f"{side}.{side}_layernorm.{end}"] = f"{side}.layer_norm.{end}"
    ours, theirs = reference.state_dict(), port.state_dict()
    return {target: source for target, source in named.items() if source in ours and target in theirs}


def use_gelu(reference: Any, port: Any) -> None:
    """Give the layers of Paddle's Transformer gelu, which transformers has by default."""
    del reference
    import paddle

    for one in port.sublayers():
        if hasattr(one, "linear1") and hasattr(one, "activation"):
            one.activation = paddle.nn.functional.gelu


def hide_hidden(reference: Any, port: Any) -> None:
    """Let Blenderbot's encoder hide what the mask hides; the port hides what it does not."""
    del reference

    def turn(layer: Any, args: Any, kwargs: Any) -> Any:
        del layer
        return args, {**kwargs, "src_mask": -1e4 - kwargs["src_mask"]}

    port.encoder.encoder.register_forward_pre_hook(turn, with_kwargs=True)


def hide_memory(reference: Any, port: Any) -> None:
    """Let the attention to the encoder hide what the mask hides, whatever the port made of it."""
    del reference
    seen = []

    def note(layer: Any, args: Any, kwargs: Any) -> Any:
        del layer
        seen[:] = [kwargs["attention_mask"]]
        return args, kwargs

    def hide(layer: Any, args: Any, kwargs: Any) -> Any:
        del layer
        import paddle

        hidden = 1.0 - seen[0].astype(paddle.get_default_dtype())
        return args, {**kwargs, "memory_mask": hidden.unsqueeze([1, 2]) * -1e4}

    port.register_forward_pre_hook(note, with_kwargs=True)
    port.decoder.decoder.register_forward_pre_hook(hide, with_kwargs=True)


def share_embeddings(reference: Any, port: Any) -> None:
    """Let both halves use the embedding that the model has for them."""
    del reference
    port.encoder.embed_tokens = port.decoder.embed_tokens = port.shared


def take_norms(reference: Any, port: Any) -> None:
    """Give each LayerNorm the epsilon of the reference's."""
    (epsilon,) = {one.eps for one in reference.modules() if type(one).__name__ == "LayerNorm"}
    for one in port.sublayers():
        if type(one).__name__ == "LayerNorm":
            one._epsilon = epsilon


def mask_megatron(reference: Any, port: Any) -> None:
    """Let MegatronBert add -1e9 where the mask is 0; it adds the mask itself."""
    del reference

    def mask(layer: Any, args: Any, kwargs: Any) -> Any:
        del layer
        import paddle

        shown = kwargs["attention_mask"].astype(paddle.get_default_dtype())
        return args, {**kwargs, "attention_mask": (1.0 - shown) * -1e9}

    port.encoder.register_forward_pre_hook(mask, with_kwargs=True)


def order_masks(reference: Any, port: Any) -> None:
    """Let ProphetNet's masks stand by samples, then heads, as the scores do that they are added to."""
    del reference
    heads = port.config.num_encoder_attention_heads

    def order(layer: Any, args: Any, kwargs: Any) -> Any:
        del layer
        name = "attention_mask" if "encoder_attn_mask" not in kwargs else "encoder_attn_mask"
        mask = kwargs[name]
        if mask is None:
            return args, kwargs
        shape = mask.shape
        turned = mask.reshape([heads, -1, *shape[1:]]).transpose([1, 0, 2, 3]).reshape(shape)
        return args, {**kwargs, name: turned}

    for one in (*port.encoder.layers, *port.decoder.layers):
        one.register_forward_pre_hook(order, with_kwargs=True)


def give_position_rows(reference: Any, port: Any) -> None:
    """Let ProphetNet's embeddings of positions, which begin after their padding index, give its row as well."""
    del reference
    import paddle

    def forward(layer: Any, shape: Any, **_: Any) -> Any:
        ids = paddle.arange(1, shape[1] + 1).expand(shape)
        return paddle.nn.functional.embedding(ids, layer.weight), ids

    for one in port.sublayers():
        if type(one).__name__ == "ProphetNetPositionalEmbeddings":
            one._padding_idx = None
            replace_forward(one, forward)


def order_streams(reference: Any, port: Any) -> None:
    """Give ProphetNet's predicted streams the relative positions of transformers'.

    The port cuts the streams' batch as if it were time. The reference takes streams, samples, heads and times in one order and
    calls them by another; so does the port then.
    """
    del reference
    import paddle

    def positions(layer: Any, hidden: Any, weights: Any, ids: Any, buckets: Any) -> Any:
        del weights, ids
        streams, time, samples, size = hidden.shape
        heads, number = layer.num_attn_heads, layer.num_buckets
        hidden = hidden.reshape([streams, samples, time, size]).transpose([1, 0, 2, 3])
        found = layer.relative_pos_embeddings(hidden).reshape([samples, streams, time, number, heads])
        found = found.transpose([0, 2, 1, 4, 3]).reshape([-1, number])
        index = paddle.tile(buckets.unsqueeze(0), [streams, 1, heads, 1]).reshape([-1, buckets.shape[-1]])
        found = paddle.take_along_axis(found, index, 1).reshape([samples, streams, heads, time, -1])
        return found.transpose([1, 0, 2, 3, 4]).reshape([streams, samples * heads, time, -1])

    for one in port.decoder.layers:
        one.self_attn.get_predict_relative_pos_embeddings = types.MethodType(positions, one.self_attn)


def keep_scale(reference: Any, port: Any) -> None:
    """Let the decoder not scale its embeddings, as transformers' does not."""
    del reference
    port.decoder.embed_scale = 1.0


def keep_attention(reference: Any, port: Any) -> None:
    """Take the dropout after DistilBERT's attention away: the reference has none."""
    del reference
    for one in port.encoder.layers:
        one.dropout1.p = 0.0


GELU = Difference(message="activation_function is relu by default, transformers' is gelu", remove=use_gelu)
INVERTED = Difference(message="the encoder's mask hides what is to be seen", remove=hide_hidden)
MEMORY = Difference(message="the attention to the encoder does not follow attention_mask", remove=hide_memory)
SCALED = Difference(message="the decoder scales its embeddings, transformers' only the encoder", remove=keep_scale)
UNTIED = Difference(
    message="the embeddings of encoder, decoder and model are three tensors, transformers' one", remove=share_embeddings
)
NAN = Difference(message="hidden tokens see nothing, and their softmax is NaN", remove=mask_finitely, shows=("eval",))
BLENDERBOT = {key: value for key, value in SEQUENCES.items() if key not in ("encoder_layers", "decoder_layers")}
GPTS = {
    "vocab_size": WORDS,
    "n_positions": 40,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "rotary_dim": 4,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CHECK = (
    pair("electra", model("ElectraModel", "ElectraConfig", ENCODER | {"embedding_size": 16}), "input_ids", "attention_mask", "token_type_ids"),
    pair("ernie", model("ErnieModel", "ErnieConfig", ENCODER), "input_ids", "attention_mask", "token_type_ids", differences=(PADDING,)),
    pair("xlnet", model("XLNetModel", "XLNetConfig", {"vocab_size": WORDS, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}), "input_ids", "attention_mask"),
    pair("deberta", model("DebertaModel", "DebertaConfig", ENCODER | {"relative_attention": True, "type_vocab_size": 0, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "max_relative_positions": 40}), differences=(NAN, PADDING), raises=("training",)),
    pair("deberta_v2", model("DebertaV2Model", "DebertaV2Config", ENCODER | {"relative_attention": True, "type_vocab_size": 0, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "max_relative_positions": 40}, {"share_att_key": True, "position_buckets": 16}, {"share_att_key": True, "position_buckets": 16}), differences=(NAN, PADDING), raises=("training",)),
    pair("mbart", model("MBartModel", "MBartConfig", SEQUENCES | {"scale_embedding": True}), "input_ids", "decoder_input_ids", "attention_mask", truth=as_bart),
    pair("pegasus", model("PegasusModel", "PegasusConfig", SEQUENCES | {"scale_embedding": True}), "input_ids", "decoder_input_ids", "attention_mask", truth=as_bart, differences=(GELU,)),
    pair("blenderbot", model("BlenderbotModel", "BlenderbotConfig", BLENDERBOT | {"scale_embedding": True}, {"encoder_layers": 2, "decoder_layers": 2}, {"num_encoder_layers": 2, "num_decoder_layers": 2}), "input_ids", "decoder_input_ids", "attention_mask", differences=(PADDING, INVERTED, MEMORY, UNTIED)),
    pair("blenderbot_small", model("BlenderbotSmallModel", "BlenderbotSmallConfig", BLENDERBOT | {"scale_embedding": True}, {"encoder_layers": 2, "decoder_layers": 2}, {"num_encoder_layers": 2, "num_decoder_layers": 2}), "input_ids", "decoder_input_ids", "attention_mask", differences=(PADDING, INVERTED, MEMORY, SCALED)),
    pair("mamba", model("MambaModel", "MambaConfig", {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}), "input_ids"),
    pair("qwen2", model("Qwen2ForCausalLM", "Qwen2Config", DECODER | {"num_key_value_heads": 2}), "input_ids", tokens=True),
    pair("mistral", model("MistralForCausalLM", "MistralConfig", DECODER | {"num_key_value_heads": 2}), "input_ids", tokens=True, differences=(PADDING,)),
    pair("convbert", model("ConvBertModel", "ConvBertConfig", ENCODER | {"embedding_size": 16}), "input_ids", "attention_mask", "token_type_ids", ignore=("pooler.dense",), differences=(PADDING,)),
    pair("mpnet", model("MPNetModel", "MPNetConfig", {key: value for key, value in ENCODER.items() if key not in ("type_vocab_size", "pad_token_id")}), differences=(PADDING, Difference(message="layer_norm_eps is 1e-5 by default, transformers' is 1e-12", remove=take_norms))),
    pair("roformer", model("RoFormerModel", "RoFormerConfig", ENCODER | {"embedding_size": 16}), "input_ids", "attention_mask", "token_type_ids", ignore=("pooler.dense", "encoder.embed_positions")),
    pair("mobilebert", model("MobileBertModel", "MobileBertConfig", ENCODER | {"embedding_size": 16, "intra_bottleneck_size": 16, "classifier_activation": True}, theirs={"true_hidden_size": 16}), "input_ids", "attention_mask", "token_type_ids", differences=(PADDING,)),
    pair("squeezebert", model("SqueezeBertModel", "SqueezeBertConfig", ENCODER | {"embedding_size": 32}), "input_ids", "attention_mask", "token_type_ids"),
    pair("distilbert", model("DistilBertModel", "DistilBertConfig", {"vocab_size": WORDS, "max_position_embeddings": 40}, {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}, {key: value for key, value in ENCODER.items() if key.startswith(("hidden", "num", "inter"))}),
         differences=(Difference(message="dropout after the attention, transformers has none", remove=keep_attention),)),
    pair("nystromformer", model("NystromformerModel", "NystromformerConfig", ENCODER | {"segment_means_seq_len": 12, "num_landmarks": 12}), "input_ids", "attention_mask", "token_type_ids", differences=(PADDING,)),
    pair("codegen", model("CodeGenModel", "CodeGenConfig", GPTS | {"n_ctx": 40}), "input_ids"),
    pair("gptj", model("GPTJModel", "GPTJConfig", GPTS), "input_ids", "attention_mask"),
    pair("bloom", model("BloomModel", "BloomConfig", {"vocab_size": WORDS, "hidden_size": 32, "n_layer": 2, "n_head": 4}), "input_ids"),
    pair("ctrl", model("CTRLModel", "CTRLConfig", {"vocab_size": WORDS, "n_positions": 40, "n_embd": 32, "dff": 64, "n_layer": 2, "n_head": 4}), "input_ids", ignore=("pos_encoding",)),
    pair("xlm", model("XLMModel", "XLMConfig", {"vocab_size": WORDS, "emb_dim": 32, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 40}), "input_ids"),
    pair("xlm_roberta", model("XLMRobertaModel", "XLMRobertaConfig", ENCODER | {"layer_norm_eps": 1e-5, "pad_token_id": 1}), differences=(PADDING,)),
    pair("megatron_bert", model("MegatronBertModel", "MegatronBertConfig", ENCODER), "input_ids", "attention_mask", "token_type_ids",
         differences=(PADDING, Difference(message="the mask is added as it is, 0 and 1", remove=mask_megatron))),
    pair("prophetnet", model("ProphetNetModel", "ProphetNetConfig", {"vocab_size": WORDS, "hidden_size": 32, "max_position_embeddings": 40, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_encoder_layers": 2, "num_decoder_layers": 2, "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4}), "input_ids", "decoder_input_ids", "attention_mask",
         differences=(PADDING, Difference(message="the embedding of positions gives zeros at its padding index", remove=give_position_rows),
                      Difference(message="masks stand by heads, then samples; the scores by samples, then heads", remove=order_masks),
                      Difference(message="the predicted streams' relative positions are in another order", remove=order_streams))),
    pair("mt5", model("MT5Model", "MT5Config", {"vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}), "input_ids", "decoder_input_ids", "attention_mask"),
    pair("dpt", model("DPTModel", "DPTConfig", VISION), "pixel_values", labels=(2, 17, 32)),
    pair("llama_tied", model("LlamaForCausalLM", "LlamaConfig", DECODER | {"num_key_value_heads": 4, "rope_theta": 1e6, "tie_word_embeddings": True}), "input_ids", tokens=True),
    pair("falcon", model("FalconModel", "FalconConfig", {"vocab_size": WORDS, "hidden_size": 32, "alibi": False, "bias": True, "multi_query": True, "parallel_attn": True}, {"num_hidden_layers": 2, "num_attention_heads": 4, "new_decoder_architecture": False}, {"n_layer": 2, "n_head": 4}, "RWModel", "RWConfig"), "input_ids"),
    pair("luke", model("LukeModel", "LukeConfig", ENCODER | {"entity_vocab_size": 20, "entity_emb_size": 16, "use_entity_aware_attention": False}), "input_ids", "attention_mask",
         ignore=("encoder.layer.*.attention.self.w2e_query", "encoder.layer.*.attention.self.e2w_query", "encoder.layer.*.attention.self.e2e_query"),
         differences=(PADDING, Difference(message="LayerNorm's epsilon is 1e-6, transformers' 1e-12", remove=take_norms))),
    pair("clipseg", model("CLIPSegModel", "CLIPSegConfig", {"text_config": TEXT, "vision_config": VISION, "projection_dim": 16}), "input_ids", "pixel_values", labels=(2, 2),
         differences=(Difference(message=POOLED.message, remove=project_each),)),
    pair("chinese_clip", model("ChineseCLIPModel", "ChineseCLIPConfig", {"text_config": ENCODER, "vision_config": VISION, "projection_dim": 16}), "input_ids", "pixel_values", labels=(2, 2),
         differences=(POOLED,)),
    pair("bit", model("BitModel", "BitConfig", {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "bottleneck", "num_groups": 4}), "pixel_values", labels=(2, 32, 4, 4)),
)  # fmt: skip
