"""Weight files are followed by an interpreter that runs nothing of them: what torch and Paddle read, it reads the same."""

import collections
import pickle
import struct
import zipfile

import numpy as np
import pytest
from pickles import Call

from tipchain.errors import WeightsError
from tipchain.weights.files import load_torch_weights, read_paddle_file, read_torch_state

torch = pytest.importorskip("torch")
TORCH_DTYPES = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128",
)  # fmt: skip


def tensors():
    base = torch.arange(24, dtype=torch.float32)
    state = collections.OrderedDict((name, base[:6].to(getattr(torch, name)).reshape(2, 3)) for name in TORCH_DTYPES)
    weight = torch.nn.Parameter(torch.randn(4, 5))
    state.update(
        scalar=torch.tensor(3.5),
        empty=torch.zeros(0, 3),
        turned=base.reshape(4, 6).t(),
        part=base[5:9],
        strided=base[::3],
        expanded=torch.arange(3.0).expand(4, 3),
        tied=weight,
        tie=weight,
    )
    state._metadata = {"": {"version": 1}}
    return state


@pytest.mark.parametrize("new", [True, False], ids=["zip", "streams"])
def test_every_kind_of_tensor_is_read_as_torch_reads_it(tmp_path, new):
    path = tmp_path / "a.pth"
    state = tensors()
    torch.save(state, path, _use_new_zipfile_serialization=new)
    found, expected = read_torch_state(path), torch.load(path, weights_only=True)
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        bits = (one.detach().contiguous().reshape(-1).view(torch.uint8) for one in (found[name], tensor))
        assert torch.equal(*bits), name


@pytest.mark.parametrize(
    ("tensor", "found"),
    [
        (torch.tensor([1 + 2j]).conj(), "a tensor that is still to be conjugated or negated"),
        (torch.ones(2, dtype=torch.float8_e5m2), r"a call of torch._utils._rebuild_tensor_v3"),
    ],
)
def test_tensors_that_paddle_cannot_hold_are_refused(tmp_path, tensor, found):
    torch.save({"a": tensor}, tmp_path / "a.pth")
    refuse(tmp_path / "a.pth", found)


def test_a_checkpoint_gives_its_state_dict(tmp_path):
    net = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 7])
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.save(
        {
            "state_dict": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "epoch": 3,
            "dtype": torch.float16,
            "device": torch.device("cpu"),
            "size": torch.Size([1, 2]),
            "names": {"a"},
        },
        tmp_path / "c.pth",
    )
    found = read_torch_state(tmp_path / "c.pth")
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        name: tensor.tolist() for name, tensor in net.state_dict().items()
    }


def refuse(path, found):
    with pytest.raises(WeightsError, match=rf"is no complete torch weight file\n  found: {found}"):
        read_torch_state(path)


def changed(path, **entries):
    """Rewrite a file of torch.save with other contents of some entries (None: without it)."""
    with zipfile.ZipFile(path) as archive:
        kept = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in kept.items():
            key = name.rpartition("/")[2]
            if entries.get(key, content) is not None:
                archive.writestr(name, entries.get(key, content))


def test_a_layer_that_asks_for_the_version_of_its_weights_gets_one(tmp_path):
    class Versioned(torch.nn.Linear):
        _version = 2

        def _load_from_state_dict(self, state, prefix, local_metadata, *more):
            if local_metadata.get("version") != 2:
                raise ValueError("version should be 2")
            super()._load_from_state_dict(state, prefix, local_metadata, *more)

    model, other = (torch.nn.Sequential(Versioned(2, 3)) for _ in range(2))
    torch.save(model.state_dict(), tmp_path / "net.pth")
    load_torch_weights(other, tmp_path / "net.pth")
    assert torch.equal(other[0].weight, model[0].weight)


def test_tensors_stay_inside_their_file(tmp_path):
    path = tmp_path / "a.pth"

    def save():
        torch.save({"a": torch.arange(300.0)}, path)

    save()
    with zipfile.ZipFile(path) as archive:
        pickled = archive.read("a/data.pkl")
    number = b"M" + struct.pack("<H", 300)
    assert pickled.count(number) == 2  # of the storage and of the tensor
    at = pickled.rindex(number)
    changed(path, **{"data.pkl": pickled[:at] + b"M" + struct.pack("<H", 301) + pickled[at + 3 :]})
    refuse(path, r"a tensor of shape \(301,\) beyond its storage's 1200 bytes")
    save()
    changed(path, **{"0": None})
    refuse(path, "a tensor whose storage '0' is not in the file")
    # A stride of 0 makes much of little.
    assert pickled.endswith(b".")
    stride = pickled.rindex(b"K\x01\x85")
    huge = b"J" + struct.pack("<i", 2**31 - 1)
    save()
    changed(path, **{"data.pkl": pickled[:at] + huge + pickled[at + 3 : stride] + b"K\x00" + pickled[stride + 2 :]})
    refuse(path, r"a tensor of shape \(2147483647,\) in a file of")


def test_compressed_entries_and_other_archives_are_refused(tmp_path):
    path = tmp_path / "a.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", pickle.dumps({}, 2) + bytes(10_000))
    refuse(path, "a compressed entry, 'a/data.pkl'")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickle.dumps({}, 2))
        archive.writestr("a/constants.pkl", pickle.dumps((), 2))
    refuse(path, "a TorchScript archive")
    path.write_bytes(b"PK\x03\x04 and nothing else")
    refuse(path, "")
    path.write_bytes(pickle.dumps({"a": 1}, 2))
    refuse(path, "a file that torch.save did not write")


def test_a_dtype_out_of_a_file_is_never_built(tmp_path):
    # numpy.dtype.__setstate__ believes what it is told: addresses of fields, and of what a structured array points to.
    for state in [(3, "|", None, ("a",), {"a": (np.dtype(object), 0)}, 8, 1, 27), (3, "|", None, None, None, 8, 1, 63)]:
        dtype = Call(np.dtype, "V8", False, True)
        dtype.call = (*dtype.call, state)
        array = Call(np.zeros(1).__reduce__()[0], np.ndarray, (0,), b"b")
        array.call = (*array.call, (1, (1,), dtype, False, struct.pack("<Q", 0x4141414141414141)))
        (tmp_path / "a.pdparams").write_bytes(pickle.dumps({"a": array}, 4))
        with pytest.raises(WeightsError, match="an array of dtype 'V8'"):
            read_paddle_file(tmp_path / "a.pdparams")


def test_paddle_files_hold_more_than_arrays(tmp_path):
    value = {
        "w": np.arange(3.0),
        "LR_Scheduler": {"last_epoch": 3, "last_lr": 0.1, "best": None, "milestones": [1, 2]},
        "old": ("linear_0.w_0", np.ones(2)),
        "text": "ü",
        "bytes": b"ab",
        "StructuredToParameterName@@": {"w": "x"},
    }
    for protocol in (2, 3, 4):
        (tmp_path / "a.pdparams").write_bytes(pickle.dumps(value, protocol))
        found = read_paddle_file(tmp_path / "a.pdparams")
        assert list(found) == ["w", "LR_Scheduler", "old", "text", "bytes"]
        assert found["LR_Scheduler"] == value["LR_Scheduler"]
        assert found["w"].tolist() == [0, 1, 2]
        assert found["old"].tolist() == [1, 1]
        assert (found["text"], found["bytes"]) == ("ü", b"ab")


def test_a_file_that_python_2_wrote(tmp_path):
    raw = np.arange(2, dtype="<f4").tobytes()
    stream = (
        b"\x80\x02}U\x01wcnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02\x85cnumpy\ndtype\nU\x02f4K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89U" + bytes([len(raw)]) + raw + b"tbs."
    )
    (tmp_path / "a.pdparams").write_bytes(stream)
    assert read_paddle_file(tmp_path / "a.pdparams")["w"].tolist() == [0, 1]
