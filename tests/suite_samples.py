"""A small parameter file of each suite, as the suites write them, with all that a chain can have on one GPU."""

from chain_samples import ROOT, TEMPLATE, TUTORIAL, edit


def simple(sample: str, *changes: tuple[str, str]) -> str:
    """Return a recorded sample with the first value where it has several, on one GPU, with the usual training alone."""
    lines = (ROOT / f"tests/conformance/samples/{sample}.txt").read_text(encoding="utf-8").splitlines()
    alone = [line if "train_" in line.partition(":")[2] else line.partition("|")[0] for line in lines]  # modes' values
    return edit("\n".join(alone), ("gpu_list", "gpu_list:0"), *changes)


PADDLECLAS = simple(
    "paddleclas/resnet_amp",
    ("-o Global.auto_cast", "-o Global.auto_cast:null"),
    ("trainer:", "trainer:norm_train"),
    ("-o Global.weights", "-o Global.pretrained_model:"),
    ("kl_quant", "kl_quant:null"),
    ("infer_quant", "infer_quant:False"),
    ("-o Global.use_gpu", "-o Global.use_gpu:True|False"),
    ("-o Global.enable_mkldnn", "-o Global.enable_mkldnn:True"),
)
PADDLEDETECTION = simple(
    "paddledetection/yolo_slim",
    ("auto_cast", "auto_cast:null"),
    ("eval:", "eval:tools/eval.py -c configs/yolo.yml -o"),
    ("--device", "--device:gpu|cpu"),
)
PADDLEOCR = simple(
    "paddleocr/lines_pact", ("Global.auto_cast", "Global.auto_cast:null"), ("--use_gpu", "--use_gpu:False|True")
)
PADDLERS = simple(
    "paddlers/change_plain",
    ("use_gpu", "use_gpu:True"),
    ("trainer:", "trainer:norm_train"),
    ("eval:", "eval:test_tipc/run_task.py eval change"),
    ("infer_model", "infer_model:output/unet"),
    ("infer_export", "infer_export:deploy/export/export_model.py"),
    ("--device", "--device:cpu|gpu"),
)
PADDLESEG = simple(
    "paddleseg/liteseg_slim",
    ("--precision", "--precision:null"),
    ("infer_quant", "infer_quant:False"),
    ("--device:cpu", "--device:cpu|gpu"),
    ("--use_trt", "--use_trt:False"),
)
MEDICALSEG = edit(
    PADDLESEG,
    ("norm_train", "norm_train:./train.py --config a.yml"),
    ("norm_export", "norm_export:./export.py --config a.yml"),
    ("inference", "inference:./deploy/python/infer.py"),
)
PANOPTICSEG = simple(
    "panopticseg/mask2former",
    ("--device:cpu", "--device:gpu"),
    ("infer_model", "infer_model:output/mask/model.pdparams"),
    ("infer_export", "infer_export:tools/export.py"),
    ("--device:cpu", "--device:cpu|gpu"),
)
PADDLEVIDEO = simple(
    "paddlevideo/pp_tsm",
    ("null:null", "-o auto_cast:null"),
    ("train_model_name", "train_model_name:null"),
    ("--use_gpu", "--use_gpu:True|False"),
)
PADDLEGAN = simple("paddlegan/edvr", ("eval:", "eval:null"), ("--device", "--device:cpu|gpu"))
PADDLE3D = edit(
    PADDLEGAN,
    ("total_iters", "--iters:lite_train_lite_infer=5|whole_train_whole_infer=200"),
    ("output_dir", "--save_dir:null"),
    ("dataset.train.batch_size", "--batch_size:lite_train_lite_infer=1|whole_train_whole_infer=1"),
    ("pretrained_model", "--model:null"),
    ("train_model_name", "train_model_name:iter_5/model.pdparams"),
    ("norm_train", "norm_train:tools/train.py --config pillars.yml"),
    ("eval:", "eval:tools/evaluate.py --config pillars.yml"),
    ("norm_export", "norm_export:tools/export.py --config pillars.yml --model"),
    ("inference_dir", "inference_dir:null"),
    ("inference:", "inference:deploy/pillars/infer.py"),
)
PASSL = simple(
    "passl/contrast_linear",
    ("norm_export", "norm_export:tools/train.py -c configs/contrast/contrast_clas.yaml"),
    ("infer_quant", "infer_quant:False"),
    ("-o use_gpu", "-o use_gpu:True|False"),
    ("-o use_fp16", "-o use_fp16:False"),
)
PADDLEREC = edit(
    TEMPLATE,
    ("gpu_list", "gpu_list:0"),
    ("--device", "runner.use_gpu:True"),
    ("--epochs", "runner.epochs:lite_train_lite_infer=1|whole_train_whole_infer=4"),
    ("--output-dir", "runner.model_save_path:null"),
    ("--batch-size", "runner.train_batch_size:lite_train_lite_infer=8"),
    ("train_model_name", "train_model_name:lite_train_lite_infer=0/rec|whole_train_whole_infer=3/rec"),
    ("--use-gpu", "--use_gpu:True|False"),
)
PADDLENLP = edit(
    TEMPLATE,
    ("gpu_list", "gpu_list:0"),
    ("train_model_name", "train_model_name:model.pdparams"),
    ("--use-gpu", "--device:gpu|cpu"),
)
SUITE_FILES = {
    "paddleclas": PADDLECLAS,
    "paddledetection": PADDLEDETECTION,
    "paddleseg": PADDLESEG,
    "medicalseg": MEDICALSEG,
    "panopticseg": PANOPTICSEG,
    "paddlers": PADDLERS,
    "paddleocr": PADDLEOCR,
    "paddlenlp": PADDLENLP,
    "paddlevideo": PADDLEVIDEO,
    "paddlerec": PADDLEREC,
    "paddlegan": PADDLEGAN,
    "paddle3d": PADDLE3D,
    "passl": PASSL,
    "tutorial": edit(TUTORIAL, ("--pretrained:\n".strip(), "--pretrained:null")),
    "template": edit(TEMPLATE, ("gpu_list", "gpu_list:0"), ("--use-gpu", "--use-gpu:True|False")),
    "alexnet": edit(TEMPLATE, ("gpu_list", "gpu_list:0"), ("--use-gpu", "--use-gpu:True|False")),
}
