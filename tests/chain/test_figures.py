"""Figures of the suites' logs: one sample of each suite's own lines."""

import math

import pytest

from tipchain.chain.execute import LONGEST, FigureReader, log_lines

CLAS = """\
[2022/05/08 12:34:56] ppcls INFO: Arch :
[2022/05/08 12:34:56] ppcls INFO:     learning_rate : 0.8
[2022/05/08 12:34:56] ppcls INFO: [Train][Epoch 1/2][Iter: 0/25]lr(LinearWarmup): 0.00100, top1: 0.00000, top5: 0.12500, CELoss: 7.05, loss: 7.05, batch_cost: 3.50000s, reader_cost: 0.90000, ips: 2.28571 samples/s, eta: 0:02:55
[2022/05/08 12:34:57] ppcls INFO: [Train][Epoch 1/2][Iter: 10/25]lr(LinearWarmup): 0.00200, top1: 0.10000, top5: 0.20000, CELoss: 6.5, loss: 6.50, batch_cost: 0.10000s, reader_cost: 0.01000, ips: 80.00000 samples/s, eta: 0:00:04
[2022/05/08 12:34:58] ppcls INFO: [Train][Epoch 1/2][Iter: 20/25]lr(LinearWarmup): 0.00300, top1: 0.20000, top5: 0.30000, CELoss: 6.1, loss: 6.10, batch_cost: 0.20000s, reader_cost: 0.02000, ips: 40.00000 samples/s, eta: 0:00:01
[2022/05/08 12:34:58] ppcls INFO: [Eval][Epoch 1][Iter: 0/4]CELoss: 5.9, loss: 5.90, top1: 0.25, top5: 0.5, batch_cost: 9.00000s, reader_cost: 8.00000, ips: 1.0 images/sec
[2022/05/08 12:34:58] ppcls INFO: [Eval][Epoch 1][Avg]CELoss: 5.80, loss: 5.80, top1: 0.26000, top5: 0.51000
[2022/05/08 12:34:59] ppcls INFO: [Train][Epoch 2/2][Avg]top1: 0.21, top5: 0.31, CELoss: 6.00, loss: 6.00"""
DETECTION = """\
[05/08 12:00:00] ppdet.engine INFO: Epoch: [0] [ 0/50] learning_rate: 0.000020 loss_xy: 1.5 loss_cls: 2.5 loss: 31.125 eta: 0:10:00 batch_cost: 0.5000 data_cost: 0.0003 ips: 2.0000 images/s
[05/08 12:00:09] ppdet.engine INFO: Epoch: [0] [20/50] learning_rate: 0.000100 loss_xy: 1.5 loss_cls: 2.5 loss: 3.125 eta: 0:10:00 batch_cost: 0.2500 data_cost: 0.0004 ips: 4.0000 images/s
 Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.310
 Average Precision  (AP) @[ IoU=0.50      | area=   all | maxDets=100 ] = 0.510
 Average Precision  (AP) @[ IoU=0.75      | area=   all | maxDets=100 ] = 0.330
 Average Precision  (AP) @[ IoU=0.50:0.95 | area= small | maxDets=100 ] = 0.110
 Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=  1 ] = 0.280"""
SEG = """\
2022-05-08 12:00:00 [INFO]\t[TRAIN] epoch: 1, iter: 10/100, loss: 1.5000, lr: 0.009, batch_cost: 0.4, reader_cost: 0.1, ips: 10.0 samples/sec | ETA 00:01:00
2022-05-08 12:00:01 [INFO]\t[TRAIN] epoch: 1, iter: 20/100, loss: 1.0000, lr: 0.01, batch_cost: 0.2, reader_cost: 0.05, ips: 20.1 samples/sec | ETA 00:01:00
2022-05-08 12:00:02 [INFO]\t[EVAL] #Images: 10 mIoU: 0.5 Acc: 0.9 Kappa: 0.4 Dice: 0.6
2022-05-08 12:00:02 [INFO]\t[EVAL] The model with the best validation mIoU (0.5000) was saved at iter 20."""
VIDEO = """\
[05/08 12:00:00] epoch:[  1/1  ] \x1b[95mtrain step:0   \x1b[0m \x1b[92mloss: 5.98000 lr: 0.000125 top1: 0.00 top5: 0.12\x1b[0m \x1b[93mbatch_cost: 2.00000 sec,\x1b[0m reader_cost: 1.50000 sec, ips: 8.00000 instance/sec.
[05/08 12:00:03] \x1b[31mEND epoch:1  \x1b[0m \x1b[95mtrain\x1b[0m \x1b[92mloss_avg: 5.50 top1_avg: 0.10 top5_avg: 0.20\x1b[0m avg_batch_cost: 1.00 sec, avg_reader_cost: 0.50 sec, batch_cost_sum: 30.0 sec, avg_ips: 16.00 instance/sec.
[05/08 12:00:04] epoch:[  1/1  ] val step:0    loss: 9.0 top1: 0.30 top5: 0.60 batch_cost: 7.0 sec, reader_cost: 6.0 sec, ips: 1.0 instance/sec."""
TUTORIAL = """\
[Epoch 1, iter: 0] top1: 0.00000, top5: 0.00000, lr: 0.10000, loss: 6.90000, avg_reader_cost: 1.0 sec, avg_batch_cost: 2.0 sec, avg_samples: 4.0, avg_ips: 2.00000 images/sec.
[Epoch 1, iter: 10] top1: 0.12500, top5: 0.25000, lr: 0.10000, loss: 6.80000, avg_reader_cost: 0.1 sec, avg_batch_cost: 0.2 sec, avg_samples: 4.0, avg_ips: 20.00000 images/sec.
 * Acc@1 0.250 Acc@5 0.750"""
OWN = """\
[Train][Epoch 1/1][Iter 1/5] loss: 5.39922, avg_reader_cost: 0.01581 sec, avg_batch_cost: 0.75252 sec, avg_samples: 4, avg_ips: 5.00000 images/sec
[Train][Epoch 1/1][Iter 2/5] loss: 4.87619, avg_reader_cost: 0.00017 sec, avg_batch_cost: 0.51246 sec, avg_samples: 4, avg_ips: 7.00000 images/sec
[Train][Epoch 1/1][Iter 3/5] loss: 9.58582, avg_reader_cost: 0.00014 sec, avg_batch_cost: 0.64276 sec, avg_samples: 4, avg_ips: 9.00000 images/sec
[Eval][Epoch 1] acc_top1: 10.000, acc_top5: 55.000, loss: 3.74123"""
GAN = """\
[05/08 12:00:00] ppgan.engine.trainer INFO: Iter: 10/100 lr: 2.000e-04 loss_pixel: 0.1 D_A: 0.3 batch_cost: 0.50000 sec reader_cost: 0.10000 sec ips: 2.00000 images/s eta: 0:00:45
[05/08 12:00:01] ppgan.engine.trainer INFO: Metric psnr: 27.5000
[05/08 12:00:01] ppgan.engine.trainer INFO: Metric ssim: 0.8100"""
REC = """\
2022-05-08 12:00:00 - INFO - epoch: 0, batch_id: 10, auc:0.512, loss:[0.69312], avg_reader_cost: 0.01 sec, avg_batch_cost: 0.02 sec, avg_samples: 5.0, ips: 250.0 ins/s"""


def figures(step, lines):
    reader = FigureReader(step)
    for line in lines:
        reader.read(line)
    return reader.figures()


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (CLAS, {"lr": 0.003, "top1": 0.26, "top5": 0.51, "loss": 6.0, "batch_cost_s": 0.2, "reader_cost_s": 0.02,
                "ips": 40.0, "avg_ips": 60.0}),
        (DETECTION, {"lr": 1e-4, "loss": 3.125, "batch_cost_s": 0.25, "reader_cost_s": 4e-4, "ips": 4.0,
                     "avg_ips": 4.0, "map": 0.31, "map50": 0.51, "map75": 0.33}),
        (SEG, {"loss": 1.0, "lr": 0.01, "batch_cost_s": 0.2, "reader_cost_s": 0.05, "ips": 20.1, "avg_ips": 20.1,
               "miou": 0.5, "acc": 0.9, "kappa": 0.4, "dice": 0.6}),
        (VIDEO, {"loss": 5.5, "lr": 0.000125, "top1": 0.3, "top5": 0.6, "batch_cost_s": 1.0, "reader_cost_s": 0.5,
                 "ips": 8.0, "avg_ips": 16.0}),
        (TUTORIAL, {"loss": 6.8, "lr": 0.1, "top1": 0.25, "top5": 0.75, "batch_cost_s": 0.2, "reader_cost_s": 0.1,
                    "ips": 20.0, "avg_ips": 20.0}),
        (OWN, {"loss": 9.58582, "top1": 10.0, "top5": 55.0, "batch_cost_s": 0.64276, "reader_cost_s": 0.00014,
               "ips": 9.0, "avg_ips": 8.0}),
        (GAN, {"lr": 2e-4, "batch_cost_s": 0.5, "reader_cost_s": 0.1, "ips": 2.0, "avg_ips": 2.0, "psnr": 27.5,
               "ssim": 0.81}),
        (REC, {"auc": 0.512, "loss": 0.69312, "batch_cost_s": 0.02, "reader_cost_s": 0.01, "ips": 250.0,
               "avg_ips": 250.0}),
    ],
    ids=["clas", "detection", "seg", "video", "tutorial", "own", "gan", "rec"],
)  # fmt: skip
def test_training(tmp_path, log, expected):
    (tmp_path / "x.log").write_text(log)
    assert figures("train", log_lines(tmp_path / "x.log")) == expected


def test_an_evaluation_keeps_its_loss():
    assert figures("eval", OWN.splitlines()[-1:]) == {"top1": 10.0, "top5": 55.0, "loss": 3.74123}
    assert figures("eval", ["mAP(0.50, 11point) = 76.02%", "  learning_rate: 0.1"]) == {"map": 76.02}


AUTO_LOG = """\
[2022/05/08 12:00:00] root INFO: ---------------------- Env info ----------------------
[2022/05/08 12:00:00] root INFO:  OS_version: Ubuntu 16.04
[2022/05/08 12:00:00] root INFO:  paddle_version: 2.2.0
[2022/05/08 12:00:00] root INFO: ----------------------- Data info -----------------------
[2022/05/08 12:00:00] root INFO:  batch_size: 16
[2022/05/08 12:00:00] root INFO:  input_shape: dynamic
[2022/05/08 12:00:00] root INFO:  data_num: 3
[2022/05/08 12:00:00] root INFO: ----------------------- Perf info -----------------------
[2022/05/08 12:00:00] root INFO:  cpu_rss(MB): 2085.9453, gpu_rss(MB): 2443.0, gpu_util: 56.0%
[2022/05/08 12:00:00] root INFO:  total time spent(s): 0.5
[2022/05/08 12:00:00] root INFO:  preprocess_time(ms): 100.0, inference_time(ms): 20.1, postprocess_time(ms): 0.3"""


def test_inference():
    assert figures("infer", AUTO_LOG.splitlines()) == {
        "batch_size": 16,
        "data_num": 3,
        "cpu_rss_mb": 2085.9453,
        "gpu_rss_mb": 2443.0,
        "gpu_util": 56.0,
        "total_s": 0.5,
        "preprocess_ms": 100.0,
        "inference_ms": 20.1,
        "postprocess_ms": 0.3,
    }
    detection = [
        "total_time(ms): 1234.5, img_num: 3",
        "average latency time(ms): 411.50, QPS: 2.43",
        "preprocess_time(ms): 100.0, inference_time(ms): 310.1, postprocess_time(ms): 1.40",
    ]
    assert figures("infer", detection) == {
        "total_ms": 1234.5,
        "data_num": 3,
        "avg_ms": 411.5,
        "qps": 2.43,
        "preprocess_ms": 100.0,
        "inference_ms": 310.1,
        "postprocess_ms": 1.4,
    }
    own = ["total number of samples: 20, total time(s): 0.715", "cpu_rss(MB): 812.5", "avg_time_cost(ms): 7"]
    assert figures("infer", own) == {"data_num": 20, "total_s": 0.715, "cpu_rss_mb": 812.5, "avg_ms": 7}


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e-5", "1.5E+3", ".5", "-2."])
def test_numbers_of_every_kind(text):
    (value,) = figures("train", [f"loss: {text}, other: 1"]).values()
    assert value == float(text) or math.isnan(value) == math.isnan(float(text))


@pytest.mark.parametrize("line", ["loss", "my_loss: 1", "x/loss: 1", "--loss=1", "iter: 1", "loss: nano"])
def test_what_is_no_figure(line):
    assert figures("train", [line]) == {}


def test_comparisons():
    quantized = ["relative_error: 0.03", "disagreement: 0.04"]
    assert figures("compare", quantized) == {"relative_error": 0.03, "disagreement": 0.04}
    assert figures("compare", ["difference_ratio: 0.5 (step 3; of what rounding explains)"]) == {
        "difference_ratio": 0.5
    }


def test_logs_of_any_bytes_are_read_in_bounded_memory(tmp_path):
    log = tmp_path / "x.log"
    log.write_bytes(
        b"\xff\xfe caf\xe9 loss: 1\r 10%\r 20%, loss: 2\r\n\n"
        + "loss: 3\n".encode("utf-16")
        + b"\0" * 700
        + b"y" * 3_000_000
        + b" loss: 4\nlast"
    )
    lines = list(log_lines(log))
    assert max(map(len, lines)) <= LONGEST
    assert lines[1:3] == [" 10%", " 20%, loss: 2"]
    assert lines[-1] == "last"
    assert figures("train", lines)["loss"] == 3
