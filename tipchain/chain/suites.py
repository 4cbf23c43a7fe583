"""Suites as data: what differs between the public TIPC drivers, over one engine.

A suite is a layout (which line means what) and a few tables (order of arguments, names of folders and logs).
Adding one means adding data here; ``slots``, ``spec`` and ``plan`` do not know any suite by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tipchain.errors import UsageError, did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRule:
    """One line of a layout.

    Attributes:
        kind: ``header``, ``separator`` (a ``##`` line), ``slot`` or ``optional`` (``##`` may stand for it).
        role: what the engine calls the slot; the section's name for a header.
        key: the key that must stand there; "" where the key is the user's.
    """

    kind: str
    role: str = ""
    key: str = ""


def _layout(text: str) -> tuple[SlotRule, ...]:
    rules = []
    for line in text.split():
        role, _, key = line.partition(":")
        if role.startswith("="):
            rules.append(SlotRule(kind="header", role=role[1:]))
        elif role == "##":
            rules.append(SlotRule(kind="separator"))
        elif role.startswith("?"):
            rules.append(SlotRule(kind="optional", role=role[1:], key=key))
        else:
            rules.append(SlotRule(kind="slot", role=role, key=key))
    return tuple(rules)


# role:key, in the order of the lines; 51 of them, the original drivers count from 0.
LAYOUT_51 = _layout(
    """
    =train_params
    model_name:model_name python:python gpu_list:gpu_list use_gpu autocast epoch save batch pretrained
    train_model_name:train_model_name train_data extra_train
    ##
    trainer:trainer train_norm train_pact train_fpgm train_distill train_x1 train_x2
    ##
    =eval_params
    eval:eval extra_eval
    ##
    =infer_params
    export_save export_weight
    export_norm:norm_export export_pact:quant_export export_fpgm:fpgm_export export_distill:distill_export
    export_x1:export1 export_x2:export2
    ?inference_dir:inference_dir
    infer_model:infer_model infer_export:infer_export infer_quant:infer_quant inference:inference
    device mkldnn threads infer_batch trt precision model_dir infer_data save_log benchmark extra_infer
    """
)

LAYOUT_TUTORIAL = _layout(
    """
    =train_params
    model_name:model_name python:python gpu_list:gpu_list use_gpu epoch save batch pretrained
    train_model_name:train_model_name train_data
    ##
    trainer:trainer train_norm
    ##
    =eval_params
    eval:eval
    ##
    =infer_params
    export_save export_weight export_norm:norm_export
    ##
    infer_model infer_export:infer_export
    ##
    inference:inference
    device infer_batch model_dir infer_data benchmark
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """How one public driver turns slots into commands.

    Names of folders and logs are ``str.format`` templates over ``trainer``, ``gpus``, ``autocast``, ``nodes``,
    ``hosts`` (``_nodes_N`` for several hosts, else "") and the values of the inference axes.

    Attributes:
        name: what users type.
        layout: the lines.
        line_limit: physical lines that the original reads.
        train_order: roles of the training arguments for one host.
        train_order_hosts: the same for several hosts.
        eval_order: roles of the evaluation arguments after the weights.
        amp_flags: words added for the autocast value ``amp``.
        amp_trainer: trainer that means AMP, where AMP is no axis.
        hosts_from: the original takes a host list of at least this many characters for several hosts.
        uses_gpu_flag: whether the device parameter goes to training.
        cvd_before_eval: the original sets the device before evaluation, not only before inference.
        raw_axes: inference axes that the original prints even when they are ``null``.
        out: the original's output folder, of ``model`` and ``mode``.
        save_name: the folder that a training writes.
        cpu_log: log of an inference on the CPU.
        gpu_log: log of an inference on a GPU.
        train_logs: whether evaluation and export have logs of their own in the original.
        whole_export_log: log of an export in whole_infer, "" for the terminal.
        infer_uses: roles of the inference arguments in order, by device.
        axes: axes of the inference product by device, the outermost first.
        data_after_training: slots with the images for inference after training; the first that is given counts.
        legacy_data_after_training: the same in the original.
        exports_to_save_value: whole_infer exports to the value of the save slot, not beside the model.
        status: end of a line in results_python.log.
    """

    name: str
    layout: tuple[SlotRule, ...]
    line_limit: int
    train_order: tuple[str, ...]
    train_order_hosts: tuple[str, ...]
    eval_order: tuple[str, ...]
    amp_flags: tuple[str, ...] = ()
    amp_trainer: str = ""
    hosts_from: int = 27
    uses_gpu_flag: bool = True
    cvd_before_eval: bool = False
    raw_axes: frozenset[str] = frozenset()
    out: str
    save_name: str
    cpu_log: str
    gpu_log: str
    train_logs: bool = False
    whole_export_log: str = ""
    infer_uses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    data_after_training: tuple[str, ...]
    legacy_data_after_training: tuple[str, ...]
    exports_to_save_value: bool = False
    status: str

    @property
    def roles(self) -> frozenset[str]:
        """The roles that the layout has."""
        return frozenset(rule.role for rule in self.layout if rule.kind in ("slot", "optional"))


_USUAL_TRAIN = ("use_gpu", "save", "epoch", "pretrained", "autocast", "batch", "extra_train", "amp")
_USUAL_HOSTS = ("use_gpu", "save", "pretrained", "epoch", "autocast", "batch", "extra_train", "amp")


def _template(name: str, raw_axes: frozenset[str]) -> Suite:
    return Suite(
        name=name,
        layout=LAYOUT_51,
        line_limit=51,
        train_order=_USUAL_TRAIN,
        train_order_hosts=_USUAL_HOSTS,
        eval_order=("use_gpu", "extra_eval"),
        amp_flags=(
            "Global.use_amp=True",
            "Global.scale_loss=1024.0",
            "Global.use_dynamic_loss_scaling=True",
        ),
        raw_axes=raw_axes,
        out="./test_tipc/output",
        save_name="{trainer}_gpus_{gpus}_autocast_{autocast}{hosts}",
        cpu_log=(
            "python_infer_cpu_usemkldnn_{mkldnn}_threads_{threads}_precision_{precision}"
            "_batchsize_{infer_batch}.log"
        ),
        gpu_log="python_infer_gpu_usetrt_{trt}_precision_{precision}_batchsize_{infer_batch}.log",
        infer_uses={
            "cpu": ("device", "mkldnn", "threads", "model", "infer_batch", "data", "benchmark", "precision",
                    "save_log", "extra_infer"),
            "gpu": ("device", "trt", "precision", "model", "infer_batch", "data", "benchmark",
                    "save_log", "extra_infer"),
        },
        axes={
            "cpu": ("mkldnn", "threads", "infer_batch", "precision"),
            "gpu": ("trt", "precision", "infer_batch"),
        },
        data_after_training=("train_data", "infer_data"),
        legacy_data_after_training=("train_data",),
        status="{command}!  ",
    )  # fmt: skip


_TUTORIAL = Suite(
    name="tutorial",
    layout=LAYOUT_TUTORIAL,
    line_limit=32,
    train_order=("save", "epoch", "pretrained", "batch"),
    train_order_hosts=("save", "pretrained", "epoch", "batch"),
    eval_order=(),
    amp_trainer="amp_train",
    hosts_from=16,
    uses_gpu_flag=False,
    cvd_before_eval=True,
    raw_axes=frozenset({"device"}),
    out="./test_tipc/output/{model}/{mode}",
    save_name="{trainer}_gpus_{gpus}_autocast_{autocast}_nodes_{nodes}.log",
    cpu_log="python_infer_cpu_batchsize_{infer_batch}.log",
    gpu_log="python_infer_gpu_batchsize_{infer_batch}.log",
    train_logs=True,
    whole_export_log="export_0.log",
    infer_uses={
        "cpu": ("device", "model", "infer_batch", "data", "benchmark"),
        "gpu": ("device", "model", "infer_batch", "data", "benchmark"),
    },
    axes={"cpu": ("infer_batch",), "gpu": ("infer_batch",)},
    data_after_training=("infer_data",),
    legacy_data_after_training=(),
    exports_to_save_value=True,
    status="{model} - {command}!  ",
)

SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        _template("tipchain", frozenset()),
        _template("template", frozenset({"device", "mkldnn"})),
        _template("alexnet", frozenset({"device"})),
        _TUTORIAL,
    )
}

# Keys and headers by which files of suites that are not supported yet give themselves away.
FOREIGN: Mapping[str, tuple[str, ...]] = {
    "paddleclas": ("-o Global.device", "-o Global.use_gpu", "kl_quant"),
    "paddledetection": ("trained_model_name", "infer_mode", "kl_quant_export"),
    "paddleseg or medicalseg": ("=export_params",),
    "panopticseg": ("--config_file",),
}
UNSUPPORTED = (
    "paddleclas",
    "paddledetection",
    "paddleseg",
    "medicalseg",
    "panopticseg",
    "paddlevideo",
    "paddlerec",
    "paddlegan",
)


def get_suite(name: str) -> Suite:
    """Return the suite called ``name``.

    Raises:
        UsageError: unknown or not supported yet; the message names the supported ones.
    """
    if name in SUITES:
        return SUITES[name]
    supported = f"\n  supported suites: {', '.join(SUITES)}"
    if name in UNSUPPORTED:
        raise UsageError(f"the suite {name!r} is not supported{supported}")
    hint = did_you_mean(name, SUITES)
    raise UsageError(f"unknown suite {name!r}" + (f", {hint}" if hint else "") + supported)
