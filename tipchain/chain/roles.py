"""What the lines of a parameter file are for, in plain words, by the role that a layout gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping

ROLES: Mapping[str, str] = {
    "model_name": "the model's name, which names the output folder",
    "python": "the interpreter",
    "gpu_list": "devices to train on, one entry after the other: -1 is the CPU, 0,1 two GPUs",
    "use_gpu": "argument that hands the device to training, evaluation and export",
    "autocast": "precisions to train in",
    "epoch": "epochs of training, by mode",
    "save": "argument for the folder that training writes to, which tipchain names",
    "batch": "batch size of training, by mode",
    "pretrained": "weights that training starts from; its key also hands trained weights to evaluation",
    "config": "configuration file, by mode",
    "train_model_name": "name of the model file that training leaves in its folder",
    "train_data": "data for inference after training",
    "extra_train": "one more argument of training",
    "extra_train2": "a second further argument of training",
    "trainer": "ways to train, by their names on the lines below",
    "train_norm": "program of normal training",
    "train_pact": "program of training with quantization (PACT)",
    "train_fpgm": "program of training with pruning (FPGM)",
    "train_distill": "program of training with distillation",
    "train_x1": "program of one more trainer",
    "train_x2": "program of a second further trainer",
    "to_static": "flags of training as a static graph",
    "eval": "program of evaluation",
    "extra_eval": "one more argument of evaluation",
    "export_save": "argument for the folder that export writes to, which tipchain names",
    "export_weight": "argument for the weights to export",
    "export_shape": "argument for the input's shape at export",
    "export_config": "argument for the configuration file at export",
    "export_norm": "program that exports what normal training left",
    "export_pact": "program that exports what training with quantization left",
    "export_fpgm": "program that exports what training with pruning left",
    "export_distill": "program that exports what training with distillation left",
    "export_x1": "program that exports what the further trainer left",
    "export_x2": "program that exports what the second further trainer left",
    "export_kl_quant": "program that quantizes a trained model (KL)",
    "inference_dir": "folder of the exported model below the training's",
    "model_url": "address of trained weights",
    "infer_model": "models of the modes without training",
    "infer_export": "programs that export them, one for each",
    "infer_quant": "whether each of them is quantized, True or False",
    "inference": "program of inference",
    "device": "devices to infer on: True or gpu is a GPU, False or cpu the CPU",
    "mkldnn": "whether to use MKL-DNN (oneDNN) on the CPU",
    "threads": "numbers of CPU threads",
    "infer_batch": "batch sizes of inference",
    "trt": "whether to use TensorRT on the GPU",
    "precision": "precisions of inference",
    "model_dir": "argument for the exported model, which tipchain names",
    "infer_data": "data for inference",
    "save_log": "argument for inference's own log",
    "benchmark": "argument that turns inference's own measurements on",
    "extra_infer": "one more argument of inference",
    "extra_infer2": "a second further argument of inference",
    "unused": "nothing",
}
PROGRAMS = re.compile(
    r"train_(norm|pact|fpgm|distill|x1|x2)|eval|export_(norm|pact|fpgm|distill|x1|x2|kl_quant)|inference"
)

_BOOLEANS = r"[A-Za-z]+"  # mistyped ones too
_NUMBER = r"-?\d+|null"
# What the values of a role look like; used only to tell where a line is missing, never to refuse one.
_LOOKS: Mapping[str, str] = {
    "use_gpu": _BOOLEANS,
    "autocast": r"null|amp|fp16|bf16|fp32|(?i:true|false)|O[0-3]",
    "epoch": rf"\w+=\S*|{_NUMBER}",
    "batch": rf"\w+=\S*|{_NUMBER}",
    "config": r"\w+=\S*|null",
    "device": _BOOLEANS,
    "mkldnn": _BOOLEANS,
    "threads": _NUMBER,
    "infer_batch": _NUMBER,
    "trt": _BOOLEANS,
    "precision": r"(fp|int)\d+|paddle|trt_\w+|bf16|(?i:true|false)|null",
    "benchmark": r"(?i:true|false|null)|\d",
}
# Words in the keys of arguments that tell what they are for; used like the looks of values.
_WORDS: Mapping[str, str] = {
    "use_gpu": "gpu|device",
    "autocast": "cast|amp|precision|fp16",
    "epoch": "epoch|iter|step",
    "save": "save|out|dir|path",
    "batch": "batch|bs$|interval",
    "pretrained": "pretrain|weight|model|load|checkpoint|resume",
    "export_save": "save|out|dir|path|^-o$",
    "export_weight": "weight|model|load|pretrain|checkpoint|^-p$",
    "device": "device|gpu",
    "mkldnn": "mkldnn|onednn",
    "threads": "thread",
    "infer_batch": "batch|bs$",
    "trt": "trt|tensorrt",
    "precision": "precision|fp16|mode",
    "model_dir": "model|config",
    "infer_data": "image|img|video|data|input|file",
    "save_log": "log",
    "benchmark": "benchmark",
}
# Words in the keys of trainers and exports that tell which kind they are.
_KINDS: Mapping[str, str] = {
    "norm": "norm",
    "pact": "pact|quant",
    "fpgm": "fpgm|prune",
    "distill": "distill",
}


def looks_like(role: str, value: str) -> bool:
    """Return whether ``value`` looks like one that ``role`` has; an empty one may stand anywhere."""
    if PROGRAMS.fullmatch(role):
        return value.strip() in ("", "null", "False") or ".py" in value or " " in value.strip()
    pattern = _LOOKS.get(role)
    parts = value.strip().split("|") if value.strip() else ()
    return pattern is None or all(re.fullmatch(pattern, part.strip()) for part in parts if part.strip())


def sounds_like(role: str, key: str) -> bool:
    """Return whether ``key`` may name what ``role`` is: a usual word for it, or no other kind of training or export."""
    if role in _WORDS:
        return key in ("", "null") or re.search(_WORDS[role], key, re.IGNORECASE) is not None
    step, _, kind = role.partition("_")
    if step not in ("train", "export") or kind not in (*_KINDS, "x1", "x2", "kl_quant"):
        return True
    named = next((name for name, pattern in _KINDS.items() if re.search(pattern, key)), None)
    return named in (None, kind) or (kind == "kl_quant" and named == "pact")


def meaning(role: str) -> str:
    """Return what ``role`` is for; roles of users' own profiles are arguments."""
    return ROLES.get(role, f"{role.replace('_', ' ')}, a line of the suite's own")
