"""Layers of both frameworks: made alike in different spellings, and with one argument changed."""

EQUAL = (
    # convolutions
    ("t.Conv1d(4, 4, 3, padding='same')", "p.Conv1D(4, 4, 3, padding='SAME')"),
    ("t.Conv1d(4, 4, 3, padding=1)", "p.Conv1D(4, 4, [3], padding=[1, 1], data_format='NLC')"),
    ("t.Conv2d(4, 4, (3, 3), (2, 2), (1, 1))", "p.Conv2D(4, 4, [3, 3], 2, [1, 1])"),
    ("t.Conv2d(4, 4, (1, 3), 1, (0, 1))", "p.Conv2D(4, 4, (1, 3), padding=[0, 0, 1, 1])"),
    ("t.Conv2d(4, 4, 3, padding=1)", "p.Conv2D(4, 4, 3, padding=[[0, 0], [0, 0], [1, 1], [1, 1]])"),
    ("t.Conv2d(4, 4, 3, padding=1)", "p.Conv2D(4, 4, 3, padding=[[0, 0], [1, 1], [1, 1], [0, 0]], data_format='NHWC')"),
    ("t.Conv2d(4, 4, 3, padding='same')", "p.Conv2D(4, 4, 3, padding='same')"),
    ("t.Conv2d(4, 4, 3, padding='same')", "p.Conv2D(4, 4, 3, padding=1)"),
    ("t.Conv2d(4, 4, 4, padding='same')", "p.Conv2D(4, 4, 4, padding='SAME')"),
    ("t.Conv2d(4, 4, 4, padding='same')", "p.Conv2D(4, 4, 4, padding=[1, 2, 1, 2])"),
    ("t.Conv2d(4, 4, 3, padding='valid', bias=False)", "p.Conv2D(4, 4, 3, padding='VALID', bias_attr=False)"),
    ("t.Conv2d(4, 4, 3, bias=False)", "p.Conv2D(4, 4, 3, bias=False)"),
    ("t.Conv2d(4, 4, 1, dilation=2)", "p.Conv2D(4, 4, 1)"),
    ("t.Conv2d(4, 4, 3, padding_mode='reflect')", "p.Conv2D(4, 4, 3)"),
    ("t.Conv2d(4, 4, 3, padding=1, padding_mode='circular', groups=2)",
     "p.Conv2D(4, 4, 3, padding=1, padding_mode='circular', groups=2)"),
    ("t.Conv3d(4, 4, 3, 1, (0, 1, 1))", "p.Conv3D(4, 4, 3, 1, [0, 1, 1])"),
    ("t.ConvTranspose1d(4, 4, 3)", "p.Conv1DTranspose(4, 4, 3)"),
    ("t.ConvTranspose2d(4, 4, 3, 2, 1, output_padding=1)", "p.Conv2DTranspose(4, 4, 3, 2, 1, output_padding=[1, 1])"),
    ("t.ConvTranspose3d(4, 4, 3)", "p.Conv3DTranspose(4, 4, 3)"),
    # pools
    ("t.MaxPool1d(3, 2)", "p.MaxPool1D(3, 2)"),
    ("t.MaxPool2d(2)", "p.MaxPool2D([2, 2], (2, 2), padding='VALID')"),
    ("t.MaxPool2d(3, 2, 1, ceil_mode=True)", "p.MaxPool2D(3, 2, [1, 1, 1, 1], ceil_mode=True)"),
    ("t.MaxPool3d((1, 2, 2))", "p.MaxPool3D([1, 2, 2], [1, 2, 2])"),
    ("t.AvgPool1d(3, 1, 1)", "p.AvgPool1D(3, 1, 1, exclusive=False)"),
    ("t.AvgPool2d(3, 2, 1)", "p.AvgPool2D(3, 2, 1, exclusive=False)"),
    ("t.AvgPool2d(3, 2, 1, count_include_pad=False)", "p.AvgPool2D(3, 2, 1)"),
    ("t.AvgPool2d(3, 2, 1, divisor_override=5)", "p.AvgPool2D(3, 2, 1, exclusive=False, divisor_override=5)"),
    ("t.AvgPool3d(2)", "p.AvgPool3D(2)"),
    ("t.LPPool1d(2, 3)", "p.LPPool1D(2, 3)"),
    ("t.LPPool2d(2, 3, 1)", "p.LPPool2D(2., 3, 1)"),
    ("t.MaxUnpool1d(2)", "p.MaxUnPool1D(2)"),
    ("t.MaxUnpool2d(2)", "p.MaxUnPool2D(2)"),
    ("t.MaxUnpool3d(2)", "p.MaxUnPool3D(2)"),
    ("t.FractionalMaxPool2d(3, 5)", "p.FractionalMaxPool2D((5, 5), 3)"),
    ("t.FractionalMaxPool3d(2, 5)", "p.FractionalMaxPool3D(5, [2, 2, 2])"),
    ("t.AdaptiveAvgPool1d(1)", "p.AdaptiveAvgPool1D(1)"),
    ("t.AdaptiveAvgPool2d(1)", "p.AdaptiveAvgPool2D((1, 1))"),
    ("t.AdaptiveAvgPool2d((None, 3))", "p.AdaptiveAvgPool2D([None, 3])"),
    ("t.AdaptiveAvgPool3d(2)", "p.AdaptiveAvgPool3D(2)"),
    ("t.AdaptiveMaxPool1d(2)", "p.AdaptiveMaxPool1D(2)"),
    ("t.AdaptiveMaxPool2d((2, 2))", "p.AdaptiveMaxPool2D(2)"),
    ("t.AdaptiveMaxPool3d(2)", "p.AdaptiveMaxPool3D(2)"),
    # padding, resizing, folding
    ("t.ConstantPad1d(2, 0.5)", "p.Pad1D([2, 2], value=0.5)"),
    ("t.ZeroPad2d(1)", "p.ZeroPad2D(1)"),
    ("t.ZeroPad2d((1, 2, 3, 4))", "p.Pad2D([1, 2, 3, 4])"),
    ("t.ReflectionPad2d(1)", "p.Pad2D(1, mode='reflect')"),
    ("t.ReplicationPad3d(1)", "p.Pad3D(1, mode='replicate', value=3.0)"),
    ("t.Upsample(scale_factor=2)", "p.Upsample(scale_factor=[2, 2])"),
    ("t.Upsample((6, 6), mode='bilinear')", "p.Upsample([6, 6], mode='BILINEAR', align_corners=False)"),
    ("t.Upsample(scale_factor=2, mode='bilinear', align_corners=True)", "p.UpsamplingBilinear2D(scale_factor=2)"),
    ("t.UpsamplingNearest2d(scale_factor=2)", "p.Upsample(scale_factor=2, mode='nearest', align_mode=1)"),
    ("t.PixelShuffle(2)", "p.PixelShuffle(2)"),
    ("t.PixelUnshuffle(2)", "p.PixelUnshuffle(2)"),
    ("t.ChannelShuffle(2)", "p.ChannelShuffle(2)"),
    ("t.Unfold(3, padding=1)", "p.Unfold([3, 3], paddings=[1, 1, 1, 1])"),
    ("t.Fold((4, 4), 2)", "p.Fold([4, 4], 2)"),
    # values
    ("t.Linear(3, 4, bias=False)", "p.Linear(3, 4, bias_attr=False)"),
    ("t.Bilinear(2, 3, 4)", "p.Bilinear(2, 3, 4)"),
    ("t.Embedding(9, 4, padding_idx=-1)", "p.Embedding(9, 4, padding_idx=8)"),
    ("t.Embedding(9, 4)", "p.Embedding(9, 4, sparse=True, norm_type=1.0)"),
    ("t.BatchNorm1d(4)", "p.BatchNorm1D(4)"),
    ("t.BatchNorm2d(4, 1e-3, 0.01)", "p.BatchNorm2D(4, 0.99, 1e-3)"),
    ("t.BatchNorm2d(4)", "p.BatchNorm2D(4, epsilon=float(__import__('numpy').float32(1e-5)))"),
    ("t.BatchNorm2d(4, momentum=0.001)", "p.BatchNorm2D(4, momentum=float(__import__('numpy').float32(0.999)))"),
    ("t.BatchNorm2d(4)", "p.BatchNorm(4)"),
    ("t.BatchNorm2d(4)", "p.SyncBatchNorm(4)"),
    ("t.BatchNorm2d(4, affine=False)", "p.BatchNorm2D(4, weight_attr=False, bias_attr=False)"),
    ("t.BatchNorm2d(4, affine=False)", "p.SyncBatchNorm(4, weight_attr=False, bias_attr=False)"),
    ("t.BatchNorm3d(4, track_running_stats=False)", "p.BatchNorm3D(4, momentum=0.5, use_global_stats=False)"),
    ("t.InstanceNorm2d(4)", "p.InstanceNorm2D(4, weight_attr=False, bias_attr=False)"),
    ("t.InstanceNorm1d(4, affine=True)", "p.InstanceNorm1D(4, momentum=0.1)"),
    ("t.LayerNorm(4)", "p.LayerNorm([4])"),
    ("t.LayerNorm((2, 4), bias=False)", "p.LayerNorm([2, 4], bias_attr=False)"),
    ("t.GroupNorm(2, 4)", "p.GroupNorm(2, 4, data_format='NHWC')"),
    ("t.LocalResponseNorm(5)", "p.LocalResponseNorm(5)"),
    # sequences
    ("t.LSTM(3, 4, batch_first=True)", "p.RNN(p.LSTMCell(3, 4))"),
    ("t.LSTM(3, 4, bias=False)", "p.LSTM(3, 4, bias_ih_attr=False, bias_hh_attr=False)"),
    ("t.LSTM(3, 4, 2, bidirectional=True, proj_size=2)", "p.LSTM(3, 4, 2, direction='bidirectional', proj_size=2)"),
    ("t.GRU(3, 4, bidirectional=True)", "p.GRU(3, 4, direction='bidirect', dropout=0.5)"),
    ("t.RNN(3, 4, nonlinearity='relu')", "p.SimpleRNN(3, 4, activation='relu')"),
    ("t.RNN(3, 4)", "p.RNN(p.SimpleRNNCell(3, 4))"),
    ("t.LSTMCell(3, 4)", "p.LSTMCell(3, 4)"),
    ("t.GRUCell(3, 4)", "p.GRUCell(3, 4)"),
    ("t.RNNCell(3, 4)", "p.SimpleRNNCell(3, 4)"),
    ("t.MultiheadAttention(8, 2, 0.1)", "p.MultiHeadAttention(8, 2, 0.1)"),
    ("t.MultiheadAttention(8, 2, kdim=6, vdim=4, bias=False)", "p.MultiHeadAttention(8, 2, kdim=6, vdim=4, bias_attr=False)"),
    ("t.TransformerEncoderLayer(8, 2, 16, 0.2, 'gelu', norm_first=True)",
     "p.TransformerEncoderLayer(8, 2, 16, 0.2, 'gelu', normalize_before=True)"),
    ("t.TransformerEncoderLayer(8, 2, 16, activation=t.GELU())", "p.TransformerEncoderLayer(8, 2, 16, activation='gelu')"),
    ("t.TransformerDecoderLayer(8, 2, 16)", "p.TransformerDecoderLayer(8, 2, 16)"),
    # functions
    *((f"t.{name}()", f"p.{name}()") for name in (
        "ReLU", "Sigmoid", "Hardsigmoid", "Hardswish", "Tanh", "Mish", "Softsign", "LogSigmoid", "Tanhshrink", "Identity",
        "SiLU", "GELU", "LeakyReLU", "ELU", "CELU", "SELU", "Hardtanh", "ReLU6", "Hardshrink", "Softshrink", "Softplus",
        "RReLU", "PReLU", "GLU", "Dropout", "AlphaDropout", "FeatureAlphaDropout", "Flatten", "PairwiseDistance",
    )),
    ("t.SiLU()", "p.Swish()"),
    ("t.GELU(approximate='tanh')", "p.GELU(True)"),
    ("t.ReLU6()", "p.Hardtanh(0.0, 6.0)"),
    ("t.Threshold(1.0, 0.0)", "p.ThresholdedReLU()"),
    ("t.Softmax(-1)", "p.Softmax()"),
    ("t.Softmax(1)", "p.Softmax()"),  # the same for two dimensions
    ("t.Softmax2d()", "p.Softmax2D()"),
    ("t.LogSoftmax(1)", "p.LogSoftmax(1)"),
    ("t.Dropout2d(0.1)", "p.Dropout2D(0.1)"),
    ("t.Dropout2d(0.1)", "p.Dropout(0.1, axis=[0, 1])"),
    ("t.Dropout3d(0.1)", "p.Dropout3D(0.1, data_format='NDHWC')"),
    ("t.Dropout(0.0)", "p.Identity()"),
    ("t.Dropout(0.0)", "p.Dropout(0.0, mode='downscale_in_infer')"),
    ("t.Unflatten(1, (2, 2))", "p.Unflatten(1, [2, 2])"),
    ("t.CosineSimilarity()", "p.CosineSimilarity()"),
)  # fmt: skip
"""Layers that are made alike."""
_CONVOLUTION = (
    ("kernel-size", "3", "5", "kernel_size={}"),
    ("stride", "1", "2", "stride={}"),
    ("padding", "0", "1", "padding={}"),
    ("dilation", "1", "2", "dilation={}"),
    ("groups", "1", "2", "groups={}"),
)
_POOL = (("kernel-size", "3", "2"), ("stride", "3", "1"), ("padding", "0", "1"))


def _convolutions():
    for axes in (1, 2, 3):
        for ours, theirs in ((f"Conv{axes}d", f"Conv{axes}D"), (f"ConvTranspose{axes}d", f"Conv{axes}DTranspose")):
            for code, one, other, argument in _CONVOLUTION:
                given = "" if code == "kernel-size" else ", kernel_size=3"
                yield (
                    f"t.{ours}(4, 4{given}, {argument.format(one)})",
                    f"p.{theirs}(4, 4{given}, {argument.format(other)})",
                    code,
                    one,
                    other,
                )
            yield f"t.{ours}(4, 4, 3)", f"p.{theirs}(4, 4, 3, bias_attr=False)", "bias", "True", "False"
        yield (
            f"t.Conv{axes}d(4, 4, 3, padding=1, padding_mode='reflect')",
            f"p.Conv{axes}D(4, 4, 3, padding=1)",
            "padding-mode",
            "reflect",
            "zeros",
        )
        yield (
            f"t.ConvTranspose{axes}d(4, 4, 3, 2, output_padding=1)",
            f"p.Conv{axes}DTranspose(4, 4, 3, 2)",
            "output-padding",
            "1",
            "0",
        )


def _pools():
    for axes in (1, 2, 3):
        for ours, theirs in (("MaxPool", "MaxPool"), ("AvgPool", "AvgPool"), ("MaxUnpool", "MaxUnPool")):
            for code, one, other in _POOL:
                given = {"kernel-size": "3", "stride": "3", "padding": "0", code: other}
                size, stride, padding = given.values()
                if code == "padding" and theirs == "AvgPool":
                    padding += ", exclusive=False"
                yield (f"t.{ours}{axes}d(3, 3, 0)", f"p.{theirs}{axes}D({size}, {stride}, {padding})", code, one, other)
        for name in ("MaxPool", "AvgPool"):
            yield (f"t.{name}{axes}d(3, 2, ceil_mode=True)", f"p.{name}{axes}D(3, 2)", "ceil-mode", "True", "False")
        yield f"t.MaxPool{axes}d(3, 2, dilation=2)", f"p.MaxPool{axes}D(3, 2)", "dilation", "2", "1"
        yield (f"t.AvgPool{axes}d(3, 2, 1)", f"p.AvgPool{axes}D(3, 2, 1)", "exclusive", "True", "exclusive=True")
        for name in ("AdaptiveAvgPool", "AdaptiveMaxPool"):
            yield f"t.{name}{axes}d(1)", f"p.{name}{axes}D(2)", "output-size", "1", "2"
        yield f"t.ZeroPad{axes}d(1)", f"p.Pad{axes}D(2)", "padding", "1", "2"
        yield f"t.ReflectionPad{axes}d(1)", f"p.Pad{axes}D(1)", "padding-mode", "reflect", "constant"
        yield f"t.ConstantPad{axes}d(1, 0.5)", f"p.Pad{axes}D(1)", "padding-value", "0.5", "0.0"
        if axes > 1:
            yield (f"t.AvgPool{axes}d(3, divisor_override=5)", f"p.AvgPool{axes}D(3)", "divisor", "5", "None")
        if axes < 3:
            yield f"t.LPPool{axes}d(2, 3)", f"p.LPPool{axes}D(2, 2, 3)", "kernel-size", "3", "2"
            yield f"t.LPPool{axes}d(2, 3)", f"p.LPPool{axes}D(2, 3, 2)", "stride", "3", "2"
            yield f"t.LPPool{axes}d(2, 3)", f"p.LPPool{axes}D(1, 3)", "norm-type", "2", "1"
            yield (f"t.LPPool{axes}d(2, 3, ceil_mode=True)", f"p.LPPool{axes}D(2, 3)", "ceil-mode", "True", "False")


def _norms():
    for axes in (1, 2, 3):
        for family, extra in (("BatchNorm", ""), ("InstanceNorm", ", affine=True")):
            ours, theirs = f"t.{family}{axes}d(4{extra}", f"p.{family}{axes}D(4"
            yield f"{ours})", f"{theirs}, epsilon=1.1e-5)", "epsilon", "1e-05", "1.1e-05"
            yield f"{ours})", f"{theirs}, weight_attr=False, bias_attr=False)", "affine", "True", "False"
        yield (f"t.BatchNorm{axes}d(4, momentum=0.01)", f"p.BatchNorm{axes}D(4, 0.01)", "momentum", "0.01", "0.01")
        yield f"t.BatchNorm{axes}d(4)", f"p.BatchNorm{axes}D(4, bias_attr=False)", "bias", "True", "False"
        yield (
            f"t.InstanceNorm{axes}d(4, affine=True, track_running_stats=True)",
            f"p.InstanceNorm{axes}D(4)",
            "statistics",
            "True",
            "",
        )


CHANGED = (
    *_convolutions(),
    *_pools(),
    *_norms(),
    ("t.Conv2d(4, 4, 3, padding=1, dilation=2)", "p.Conv2D(4, 4, 3, padding='SAME', dilation=2)", "dilation", "2", "2"),
    ("t.Conv2d(4, 4, 3, 2, 1)", "p.Conv2D(4, 4, 3, 2, 'SAME')", "padding", "1", "SAME"),
    ("t.AvgPool2d(3, 2, 1, divisor_override=5)", "p.AvgPool2D(3, 2, 1, divisor_override=5)", "exclusive", "", "True"),
    ("t.Upsample((4, 4))", "p.Upsample([6, 6])", "output-size", "4", "6"),
    ("t.Upsample(scale_factor=2)", "p.Upsample(scale_factor=3)", "scale-factor", "2", "3"),
    ("t.Upsample(scale_factor=2, mode='bicubic')", "p.Upsample(scale_factor=2, mode='nearest')", "interpolation-mode", "bicubic", "nearest"),
    ("t.Upsample(scale_factor=2, mode='bilinear')", "p.UpsamplingBilinear2D(scale_factor=2)", "align-corners", "False", "True"),
    ("t.Upsample(scale_factor=2, mode='bilinear')", "p.Upsample(scale_factor=2, mode='bilinear', align_mode=1)",
     "align-mode", "0", "1"),
    ("t.PixelShuffle(2)", "p.PixelShuffle(3)", "upscale-factor", "2", "3"),
    ("t.PixelUnshuffle(2)", "p.PixelUnshuffle(3)", "downscale-factor", "2", "3"),
    ("t.ChannelShuffle(2)", "p.ChannelShuffle(3)", "groups", "2", "3"),
    *((f"t.{name}({first}{ours})", f"p.{name}({first}{theirs})", code, one, other)
      for name, first in (("Unfold", ""), ("Fold", "(4, 4), "))
      for ours, theirs, code, one, other in (
          ("3", "2", "kernel-size", "3", "2"), ("3, stride=2", "3", "stride", "2", "1"),
          ("3, padding=1", "3", "padding", "1", "0"), ("3, dilation=2", "3", "dilation", "2", "1"),
      )),
    ("t.Fold(4, 2)", "p.Fold([6, 6], 2)", "output-size", "4", "6"),
    ("t.Linear(3, 4)", "p.Linear(3, 4, bias_attr=False)", "bias", "True", "False"),
    ("t.Linear(3, 4, bias=False)", "p.Linear(3, 4)", "bias", "False", "None"),
    ("t.Bilinear(2, 3, 4, bias=False)", "p.Bilinear(2, 3, 4)", "bias", "False", "None"),
    ("t.Embedding(9, 4, padding_idx=0)", "p.Embedding(9, 4)", "padding-idx", "0", "None"),
    ("t.Embedding(9, 4, max_norm=1.0)", "p.Embedding(9, 4)", "max-norm", "1.0", "None"),
    ("t.Embedding(9, 4, max_norm=1.0)", "p.Embedding(9, 4, max_norm=1.0, norm_type=1.0)", "norm-type", "2.0", "1.0"),
    ("t.Embedding(9, 4, scale_grad_by_freq=True)", "p.Embedding(9, 4)", "scale-grad-by-freq", "True", "False"),
    ("t.BatchNorm2d(4, track_running_stats=False)", "p.BatchNorm2D(4)", "statistics", "False", ""),
    ("t.BatchNorm2d(4)", "p.BatchNorm2D(4, use_global_stats=True)", "statistics", "True", "True"),
    ("t.BatchNorm2d(4, momentum=None)", "p.BatchNorm2D(4)", "momentum", "cumulative", "0.9"),
    ("t.InstanceNorm2d(4)", "p.InstanceNorm2D(4)", "affine", "False", "None"),
    ("t.LayerNorm(4, eps=1e-6)", "p.LayerNorm(4)", "epsilon", "1e-06", "1e-05"),
    ("t.LayerNorm((2, 4))", "p.LayerNorm([4])", "normalized-shape", "(2, 4)", "[4]"),
    ("t.LayerNorm(4)", "p.LayerNorm(4, weight_attr=False, bias_attr=False)", "affine", "True", "False"),
    ("t.LayerNorm(4)", "p.LayerNorm(4, bias_attr=False)", "bias", "True", "False"),
    ("t.GroupNorm(2, 4)", "p.GroupNorm(4, 4)", "num-groups", "2", "4"),
    ("t.GroupNorm(2, 4)", "p.GroupNorm(2, 4, epsilon=1e-3)", "epsilon", "1e-05", "0.001"),
    ("t.GroupNorm(2, 4, affine=False)", "p.GroupNorm(2, 4)", "affine", "False", "None"),
    ("t.GroupNorm(2, 4)", "p.GroupNorm(2, 4, bias_attr=False)", "bias", "True", "False"),
    ("t.LocalResponseNorm(5)", "p.LocalResponseNorm(3)", "size", "5", "3"),
    ("t.LocalResponseNorm(5)", "p.LocalResponseNorm(5, alpha=1e-3)", "alpha", "0.0001", "0.001"),
    ("t.LocalResponseNorm(5)", "p.LocalResponseNorm(5, beta=0.5)", "beta", "0.75", "0.5"),
    ("t.LocalResponseNorm(5)", "p.LocalResponseNorm(5, k=2.0)", "k", "1.0", "2.0"),
    *((f"t.{ours}(3, 4{one})", f"p.{theirs}(3, 4{other})", code, first, second)
      for ours, theirs in (("LSTM", "LSTM"), ("GRU", "GRU"), ("RNN", "SimpleRNN"))
      for one, other, code, first, second in (
          (", 2", "", "layers", "2", "1"),
          (", bidirectional=True", "", "direction", "True", "forward"),
          (", 2, dropout=0.1", ", 2", "dropout-p", "0.1", "0.0"),
          ("", ", bias_hh_attr=False", "bias", "True", "bias_ih_attr=None, bias_hh_attr=False"),
      )),
    ("t.LSTM(3, 4)", "p.RNN(p.LSTMCell(3, 4), is_reverse=True)", "direction", "False", "backward"),
    ("t.LSTM(3, 4, proj_size=2)", "p.LSTM(3, 4)", "projection", "2", "0"),
    ("t.RNN(3, 4)", "p.SimpleRNN(3, 4, activation='relu')", "activation", "tanh", "relu"),
    ("t.RNNCell(3, 4)", "p.SimpleRNNCell(3, 4, 'relu')", "activation", "tanh", "relu"),
    *((f"t.{ours}(3, 4, bias=False)", f"p.{theirs}(3, 4)", "bias", "False", "bias_ih_attr=None, bias_hh_attr=None")
      for ours, theirs in (("LSTMCell", "LSTMCell"), ("GRUCell", "GRUCell"), ("RNNCell", "SimpleRNNCell"))),
    ("t.MultiheadAttention(8, 2)", "p.MultiHeadAttention(8, 4)", "num-heads", "2", "4"),
    ("t.MultiheadAttention(8, 2, 0.1)", "p.MultiHeadAttention(8, 2)", "dropout-p", "0.1", "0.0"),
    ("t.MultiheadAttention(8, 2, kdim=4)", "p.MultiHeadAttention(8, 2)", "key-size", "4", "8"),
    ("t.MultiheadAttention(8, 2, vdim=4)", "p.MultiHeadAttention(8, 2)", "value-size", "4", "8"),
    ("t.MultiheadAttention(8, 2)", "p.MultiHeadAttention(8, 2, bias_attr=False)", "bias", "True", "False"),
    ("t.MultiheadAttention(8, 2, add_bias_kv=True)", "p.MultiHeadAttention(8, 2)", "added-bias", "True", "False"),
    ("t.MultiheadAttention(8, 2, add_zero_attn=True)", "p.MultiHeadAttention(8, 2)", "added-zeros", "True", "False"),
    *((f"t.Transformer{half}Layer(8, 2, 16{one})", f"p.Transformer{half}Layer(8, 2, 16{other})", code, first, second)
      for half in ("Encoder", "Decoder")
      for one, other, code, first, second in (
          (", norm_first=True", "", "norm-order", "True", "False"),
          ("", ", activation='gelu'", "activation", "relu", "gelu"),
      )),
    ("t.GELU()", "p.GELU(True)", "gelu-form", "none", "True"),
    ("t.LeakyReLU()", "p.LeakyReLU(0.2)", "negative-slope", "0.01", "0.2"),
    ("t.ELU(0.5)", "p.ELU()", "alpha", "0.5", "1.0"),
    ("t.CELU(0.5)", "p.CELU()", "alpha", "0.5", "1.0"),
    ("t.SELU()", "p.SELU(scale=1.1)", "scale", "1.0507", "1.1"),
    ("t.SELU()", "p.SELU(alpha=1.7)", "alpha", "1.6732", "1.7"),
    ("t.Hardtanh()", "p.Hardtanh(min=-2.0)", "bounds", "-1.0", "-2.0"),
    ("t.Hardtanh()", "p.Hardtanh(max=2.0)", "bounds", "1.0", "2.0"),
    ("t.Hardshrink()", "p.Hardshrink(0.1)", "threshold", "0.5", "0.1"),
    ("t.Softshrink()", "p.Softshrink(0.1)", "threshold", "0.5", "0.1"),
    ("t.Threshold(0.5, 0.0)", "p.ThresholdedReLU(1.0)", "threshold", "0.5", "1.0"),
    ("t.Threshold(1.0, 0.5)", "p.ThresholdedReLU(1.0)", "value", "0.5", "0.0"),
    ("t.Softplus(beta=2)", "p.Softplus()", "beta", "2", "1"),
    ("t.Softplus(threshold=10)", "p.Softplus()", "threshold", "10", "20"),
    ("t.RReLU(0.1)", "p.RReLU()", "lower", "0.1", "0.125"),
    ("t.RReLU(upper=0.5)", "p.RReLU()", "upper", "0.5", "0.33"),
    ("t.PReLU(4)", "p.PReLU()", "slopes", "4", "1"),
    ("t.Softmax(-2)", "p.Softmax()", "softmax-axis", "-2", "-1"),
    ("t.LogSoftmax(1)", "p.LogSoftmax(2)", "softmax-axis", "1", "2"),
    ("t.GLU(1)", "p.GLU(2)", "axis", "1", "2"),
    ("t.Dropout(0.5)", "p.Dropout(0.4)", "dropout-p", "0.5", "0.4"),
    ("t.Dropout()", "p.Dropout(mode='downscale_in_infer')", "dropout-mode", "upscale_in_train", "downscale_in_infer"),
    ("t.Dropout()", "p.Dropout2D()", "dropout-axis", "elements", "channels"),
    ("t.Dropout()", "p.Dropout(axis=1)", "dropout-axis", "elements", "1"),
    ("t.AlphaDropout(0.1)", "p.AlphaDropout()", "dropout-p", "0.1", "0.5"),
    ("t.FeatureAlphaDropout(0.1)", "p.FeatureAlphaDropout()", "dropout-p", "0.1", "0.5"),
    ("t.Flatten()", "p.Flatten(2)", "start-axis", "1", "2"),
    ("t.Flatten()", "p.Flatten(1, -2)", "stop-axis", "-1", "-2"),
    ("t.Unflatten(1, (2, 2))", "p.Unflatten(2, [2, 2])", "axis", "1", "2"),
    ("t.Unflatten(1, (2, 2))", "p.Unflatten(1, [4, 1])", "shape", "(2, 2)", "[4, 1]"),
    ("t.CosineSimilarity(2)", "p.CosineSimilarity()", "axis", "2", "1"),
    ("t.CosineSimilarity(eps=1e-6)", "p.CosineSimilarity()", "epsilon", "1e-06", "1e-08"),
    ("t.FractionalMaxPool2d(3, 5)", "p.FractionalMaxPool2D(5, 2)", "kernel-size", "kernel_size=(3", "kernel_size=2"),
    ("t.FractionalMaxPool2d(3, 5)", "p.FractionalMaxPool2D(4, 3)", "output-size", "output_size=(5, 5)", "output_size=4"),
    ("t.FractionalMaxPool3d(3, 5)", "p.FractionalMaxPool3D(5, 2)", "kernel-size", "kernel_size=(3", "kernel_size=2"),
    ("t.FractionalMaxPool3d(3, 5)", "p.FractionalMaxPool3D(4, 3)", "output-size", "output_size=(5, 5, 5)", "output_size=4"),
    ("t.PairwiseDistance(1.0)", "p.PairwiseDistance()", "norm-type", "1.0", "2.0"),
    ("t.PairwiseDistance(eps=1e-3)", "p.PairwiseDistance()", "epsilon", "0.001", "1e-06"),
    ("t.PairwiseDistance(keepdim=True)", "p.PairwiseDistance()", "keepdim", "True", "False"),
)  # fmt: skip
"""Layers of one kind with one argument changed: the code, and parts of torch's value and Paddle's."""
