"""A small parameter file of each suite, as the suites write them, with all that a chain can have on one GPU."""

from __future__ import annotations

from chain_samples import EXPORTS, SLIM, TEMPLATE, TUTORIAL, edit

PADDLECLAS = """\
===========================train_params===========================
model_name:ResNet
python:python3.7
gpu_list:0
-o Global.device:gpu
-o Global.auto_cast:null
-o Global.epochs:lite_train_lite_infer=5|whole_train_whole_infer=100
-o Global.output_dir:./output/
-o DataLoader.Train.sampler.batch_size:8
-o Global.pretrained_model:null
train_model_name:latest
train_infer_img_dir:./dataset/val
null:null
##
trainer:norm_train
norm_train:tools/train.py -c net.yaml -o Global.seed=1
pact_train:null
fpgm_train:null
distill_train:null
to_static_train:-o Global.to_static=True
null:null
##
===========================eval_params===========================
eval:tools/eval.py -c net.yaml
null:null
##
===========================infer_params==========================
-o Global.save_inference_dir:./inference
-o Global.pretrained_model:
norm_export:tools/export_model.py -c net.yaml
quant_export:null
fpgm_export:null
distill_export:null
kl_quant:null
export2:null
pretrained_model_url:https://example.org/net.tar
infer_model:../inference/
infer_export:True
infer_quant:False
inference:python/predict_cls.py -c infer.yaml
-o Global.use_gpu:True|False
-o Global.enable_mkldnn:True
-o Global.cpu_num_threads:1
-o Global.batch_size:1
-o Global.use_tensorrt:False
-o Global.use_fp16:False
-o Global.inference_model_dir:../inference
-o Global.infer_imgs:../dataset/val
-o Global.save_log_path:null
-o Global.benchmark:False
null:null
"""

PADDLEDETECTION = """\
===========================train_params===========================
model_name:yolo
python:python3.7
gpu_list:0
use_gpu:True
auto_cast:null
epoch:lite_train_lite_infer=1|whole_train_whole_infer=300
save_dir:null
TrainReader.batch_size:lite_train_lite_infer=2|whole_train_whole_infer=8
pretrain_weights:https://example.org:8443/yolo.pdparams
trained_model_name:model_final.pdparams
train_infer_img_dir:./dataset/test/
null:null
##
trainer:norm_train
norm_train:tools/train.py -c yolo.yml -o
pact_train:tools/train.py -c yolo.yml --slim_config pact.yml -o
fpgm_train:null
distill_train:null
null:null
null:null
##
===========================eval_params===========================
eval:tools/eval.py -c yolo.yml -o
null:null
##
===========================infer_params===========================
--output_dir:./output_inference
weights:https://example.org/yolo.pdparams
norm_export:tools/export_model.py -c yolo.yml -o
pact_export:tools/export_model.py -c yolo.yml --slim_config pact.yml -o
fpgm_export:null
distill_export:null
export1:null
export2:null
kl_quant_export:tools/post_quant.py -c yolo.yml -o
##
infer_mode:norm
infer_quant:False
inference:./deploy/python/infer.py
--device:gpu|cpu
--enable_mkldnn:False
--cpu_threads:4
--batch_size:1
--use_tensorrt:null
--run_mode:paddle
--model_dir:
--image_dir:./dataset/test/
--save_log_path:null
--run_benchmark:False
--trt_max_shape:1600
===========================to_static_train_benchmark_params===========================
to_static_train:--to_static
"""

PADDLEOCR = f"""\
===========================train_params===========================
model_name:rec
python:python3.7
gpu_list:0
Global.use_gpu:True
Global.auto_cast:null
Global.epoch_num:lite_train_lite_infer=1|lite_train_whole_infer=1|whole_train_whole_infer=100
Global.save_model_dir:./output/
Train.loader.batch_size_per_card:lite_train_lite_infer=2|lite_train_whole_infer=2|whole_train_whole_infer=8
Global.pretrained_model:null
train_model_name:latest
train_infer_img_dir:./data/words
Global.print_batch_step:1
##
trainer:norm_train
norm_train:tools/train.py -c rec.yml -o
{SLIM}eval:tools/eval.py -c rec.yml -o
null:null
##
===========================infer_params===========================
Global.save_inference_dir:./output/
Global.checkpoints:
norm_export:tools/export_model.py -c rec.yml -o
{EXPORTS}inference_dir:null
infer_model:./models/rec/best_accuracy
infer_export:tools/export_model.py -c rec.yml -o
infer_quant:False
inference:tools/infer/predict_rec.py
--use_gpu:False|True
--enable_mkldnn:True
--cpu_threads:1
--rec_batch_num:1
--use_tensorrt:False
--precision:fp32
--rec_model_dir:
--image_dir:./data/words
--save_log_path:null
--benchmark:True
null:null
"""
PADDLERS = f"""\
===========================train_params===========================
model_name:seg:unet
python:python3.7
gpu_list:0
use_gpu:True
--precision:null
--num_epochs:lite_train_lite_infer=1|lite_train_whole_infer=1|whole_train_whole_infer=10
--save_dir:null
--train_batch_size:lite_train_lite_infer=2|lite_train_whole_infer=2|whole_train_whole_infer=8
--model_path:null
--config:lite_train_lite_infer=unet_lite.yaml|lite_train_whole_infer=unet_lite.yaml|whole_train_whole_infer=unet.yaml
train_model_name:best_model
--save_interval:100
##
trainer:norm_train
norm_train:test_tipc/run_task.py train seg
{SLIM}eval:test_tipc/run_task.py eval seg
null:null
##
===========================export_params===========================
--save_dir:null
--model_dir:null
--fixed_input_shape:[-1,3,64,64]
norm_export:deploy/export/export_model.py
{EXPORTS}===========================infer_params===========================
infer_model:output/unet
infer_export:deploy/export/export_model.py
infer_quant:False
inference:test_tipc/infer.py
--device:cpu|gpu
--enable_mkldnn:True
--cpu_threads:1
--batch_size:1
--use_trt:False
--precision:fp32
--model_dir:null
--config:unet.yaml
--save_log_path:null
--benchmark:True
--model_name:unet
null:null
"""
PADDLESEG = f"""\
===========================train_params===========================
model_name:fcn
python:python3.7
gpu_list:0
--device:gpu
--precision:null
--iters:lite_train_lite_infer=50|lite_train_whole_infer=50|whole_train_whole_infer=1000
--save_dir:null
--batch_size:lite_train_lite_infer=2|lite_train_whole_infer=2|whole_train_whole_infer=8
--pretrained:null
train_model_name:best_model/model.pdparams
train_infer_img_dir:data/lite/images.list
--save_interval:100
##
trainer:norm_train
norm_train:tools/train.py --config fcn.yml
{SLIM}eval:tools/val.py --config fcn.yml
null:null
##
===========================export_params===========================
--save_dir:null
--model_path:null
norm_export:tools/export.py --config fcn.yml
pact_export:null
fpgm_export:null
distill_export:null
export1:null
export2:null
===========================infer_params===========================
infer_model:output/fcn/model.pdparams
infer_export:tools/export.py --config fcn.yml
infer_quant:False
inference:deploy/python/infer.py
--device:cpu|gpu
--enable_mkldnn:True
--cpu_threads:1
--batch_size:1
--use_trt:False
--precision:fp32
--config:null
--image_path:data/images.list
--save_log_path:null
--benchmark:True
--save_dir:output/fcn
--model_name:fcn
"""

MEDICALSEG = edit(
    PADDLESEG,
    ("norm_train", "norm_train:./train.py --config fcn.yml"),
    ("norm_export", "norm_export:./export.py --config fcn.yml"),
    ("inference", "inference:./deploy/python/infer.py"),
)

PANOPTICSEG = f"""\
===========================train_params===========================
model_name:mask
python:python3.7
gpu_list:0
--device:gpu
--precision:null
--iters:lite_train_lite_infer=20|lite_train_whole_infer=20|whole_train_whole_infer=900
--save_dir:null
--batch_size:lite_train_lite_infer=1|lite_train_whole_infer=1|whole_train_whole_infer=4
--pretrained:null
--config:lite_train_lite_infer=lite.yml|lite_train_whole_infer=lite.yml|whole_train_whole_infer=whole.yml
train_model_name:best_model
train_infer_img_dir:data/lite/a.jpg
--log_iters:5
##
trainer:norm_train
norm_train:tools/train.py
{SLIM}eval:tools/val.py
--config:lite.yml
##
===========================export_params===========================
--save_dir:null
--model_path:null
--input_shape:-1 3 512 512
--config:null
norm_export:tools/export.py
pact_export:null
fpgm_export:null
distill_export:null
null:null
null:null
===========================infer_params===========================
infer_model:output/mask/model.pdparams
--device:cpu|gpu
--use_mkldnn:True
--cpu_threads:1
--batch_size:1
--use_trt:False
--precision:fp32
--config:null
--file_path:data/a.jpg
--save_log_path:null
--benchmark:False
inference:deploy/infer.py
infer_export:tools/export.py
infer_quant:False
--save_dir:out
--model_name:mask
"""

PADDLEVIDEO = f"""\
===========================train_params===========================
model_name:PP-TSM
python:python3.7
gpu_list:0
-o use_gpu:True
-o auto_cast:null
-o epochs:2
-o output_dir:null
-o DATASET.batch_size:2
-o MODEL.backbone.pretrained:null
train_model_name:null
-o PIPELINE.x:7
-o DATASET.y:1
##
trainer:norm_train
norm_train:main.py --validate -c tsm.yaml
{SLIM}eval:main.py --test -c tsm.yaml
-w:null
##
===========================infer_params===========================
-o output_path:null
-p:null
norm_export:tools/export_model.py -c tsm.yaml
{EXPORTS}inference_dir:null
infer_model:data/ppTSM.pdparams
infer_export:tools/export_model.py -c tsm.yaml
infer_quant:False
inference:tools/predict.py --config tsm.yaml
--use_gpu:True|False
--enable_mkldnn:False
--cpu_threads:1
--batch_size:1
--use_tensorrt:False
--precision:fp32
--model_file:ppTSM.pdmodel
--input_file:data/a.avi
null:null
--enable_benchmark:False
--params_file:ppTSM.pdiparams
"""

PADDLEGAN = f"""\
===========================train_params===========================
model_name:edvr
python:python3.7
gpu_list:0
##
auto_cast:null
total_iters:lite_train_lite_infer=5|lite_train_whole_infer=5|whole_train_whole_infer=200
output_dir:./output/
dataset.train.batch_size:lite_train_lite_infer=1|whole_train_whole_infer=1
pretrained_model:null
train_model_name:edvr*/*checkpoint.pdparams
train_infer_img_dir:./data/lite
null:null
##
trainer:norm_train
norm_train:tools/main.py -c edvr.yaml -o log_config.log_interval=1
{SLIM}eval:null
null:null
##
===========================infer_params===========================
--output_dir:./output/
load:null
norm_export:tools/export_model.py -c edvr.yaml --load
{EXPORTS}inference_dir:edvrmodel_generator
train_model:./inference/edvr/model
infer_export:null
infer_quant:False
inference:tools/inference.py --model_type edvr
--device:cpu|gpu
--mkldnn:False
--threads:1
--bs:1
--use_trt:False
--precision:fp32
--model_path:null
--data:./data
--save_log:null
--benchmark:True
null:null
"""

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

PASSL = """\
===========================pre_train_params===========================
model_name:contrast
python:python3.7
gpu_list:0
-o device:gpu
-o auto_cast:null
-o epochs:lite_train_lite_infer=3|whole_train_whole_infer=120
-o output_dir:./output/
-o dataloader.batch_size:8
-o pretrained_model:null
train_model_name:latest.pd
train_infer_img_dir:./data/val
null:null
##
trainer:norm_train
norm_train:tools/train.py -c configs/contrast/contrast.yaml
pact_train:null
fpgm_train:null
distill_train:null
null:null
null:null
##
===========================extrct_params===========================
extract:tools/extract_weight.py
--prefix:backbone
--output:ext.pd
##
===========================linear_eval_params===========================
linear:tools/train.py -c configs/contrast/clas.yaml
--load:null
-o milestones:[1,]
##
===========================infer_params===========================
-o save_inference_dir:./inference
--export:null
norm_export:tools/train.py -c configs/contrast/clas.yaml
quant_export:null
fpgm_export:null
distill_export:null
kl_quant:null
export2:null
pretrained_model_url:null
infer_model:../inference/
infer_export:True
infer_quant:False
inference:python/predict.py -c infer.yaml
-o use_gpu:True|False
-o enable_mkldnn:False
-o cpu_num_threads:1
--batch-size:1
-o use_tensorrt:False
-o use_fp16:False
-o model_dir:../inference
-o infer_imgs:../data/val
-o save_log_path:null
-o benchmark:True
null:null
null:null
"""

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
