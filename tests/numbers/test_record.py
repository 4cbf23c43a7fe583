import json
import os
import pickle
import pickletools
import re
import struct
import sys
import textwrap
import tracemalloc
import zipfile

import numpy as np
import pytest
from numpy.lib import format as npy
from pickles import Call
from programs import completed, full_disk

from tipchain.errors import RecordError
from tipchain.numbers import pickle_stream
from tipchain.numbers.dumps import load_record, load_tree, read_npz, save_record

ARRAYS = {
    "float32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "float64 fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "float16": np.array([1, 2], np.float16),
    "long double": np.arange(3, dtype=np.longdouble),
    "complex": np.array([1 + 2j], np.complex64),
    "bool": np.array([True, False]),
    "uint64": np.array([2**64 - 1], np.uint64),
    "big endian": np.arange(3, dtype=">i4"),
    "empty": np.zeros((0, 3)),
    "0-d": np.array(3),
    "strided": np.arange(10)[::2],
    "turned": np.arange(12.0).reshape(3, 4).T,
    "large": np.random.default_rng(0).random((300, 1000)),
    "text": np.array(["ab", "ü"]),
    "bytes": np.array([b"ab", b"c"]),
    "scalar": np.float32(2.5),
    "python": 3,
    "python float": 2.5,
    "python bool": True,
    "nested": {"a": np.arange(3), "deeper": {"b": np.float64(1), "nothing": {}}},
    7: np.arange(2),
}


def assert_same(left, right):
    assert list(left) == list(right)
    for key in left:
        if isinstance(left[key], dict):
            assert_same(left[key], right[key])
            continue
        a, b = np.asarray(left[key]), np.asarray(right[key])
        assert a.dtype.newbyteorder("=") == b.dtype.newbyteorder("="), key
        assert a.shape == b.shape
        assert (a == b).all(), key


def write_pickled(path, value, protocol=4):
    with path.open("wb") as file:
        npy.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": ()})
        pickle.dump(np.array(value, dtype=object), file, protocol=protocol)
    return path


@pytest.mark.parametrize("protocol", [2, 5])
def test_reads_what_pickle_writes(tmp_path, protocol):
    assert_same(ARRAYS, load_tree(write_pickled(tmp_path / "x.npy", ARRAYS, protocol)))


def test_reads_the_module_names_of_numpy_1_and_2(tmp_path):
    data = write_pickled(tmp_path / "x.npy", {"a": np.arange(3), "s": np.float32(1)}).read_bytes()
    new, old = b"numpy._core.multiarray", b"numpy.core.multiarray"
    here, other = (new, old) if new in data else (old, new)
    data = data.replace(bytes([len(here)]) + here, bytes([len(other)]) + other)
    data = data[:128] + b"\x80\x04" + data[128 + 2 + 9 :]  # the frame's length is no longer right
    (tmp_path / "x.npy").write_bytes(data)
    assert_same({"a": np.arange(3), "s": np.float32(1)}, load_tree(tmp_path / "x.npy"))


def test_python_2_counts_what_it_keeps_from_1(tmp_path):
    data = write_pickled(tmp_path / "x.npy", {"a": np.arange(3), "b": np.arange(4)}, 2).read_bytes()
    head, opcodes = data[:128], list(pickletools.genops(data[128:]))
    ends = [at for *_, at in opcodes[1:]] + [len(data) - 128]
    parts = [head]
    for (opcode, slot, at), end in zip(opcodes, ends, strict=True):
        kept = opcode.name in ("BINPUT", "BINGET")
        parts.append(data[128 + at : 128 + at + 1] + bytes([slot + 1]) if kept else data[128 + at : 128 + end])
    (tmp_path / "x.npy").write_bytes(b"".join(parts))
    assert_same({"a": np.arange(3), "b": np.arange(4)}, load_tree(tmp_path / "x.npy"))


def test_numpy_reads_what_we_save_and_so_do_we(tmp_path):
    path = save_record(tmp_path / "x.npy", ARRAYS)
    assert_same(ARRAYS, np.load(path, allow_pickle=True).item())
    assert_same(ARRAYS, load_tree(path))


def test_saved_arrays_are_aligned(tmp_path):
    arrays = {f"k{n}": np.arange(n + 1.0) for n in range(20)}
    save_record(tmp_path / "x.npy", {**arrays, "large": ARRAYS["large"]})
    for array in load_record(tmp_path / "x.npy").arrays.values():
        assert array.flags.aligned


def test_arrays_are_views_of_the_file_not_copies(tmp_path):
    np.save(tmp_path / "x.npy", {"a": np.zeros(1_000_000)})
    array = load_record(tmp_path / "x.npy").arrays["a"]
    assert not array.flags.owndata
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    assert type(base.obj if isinstance(base, memoryview) else base).__name__ == "mmap"
    array[0] = 5  # private: neither the file nor another reader sees it
    assert load_record(tmp_path / "x.npy").arrays["a"][0] == 0


def test_two_tensors_of_one_joined_name_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", {"a": {"b": np.arange(2)}, "a/b": np.arange(2)})
    with pytest.raises(RecordError, match=r"x\.npy: two arrays are called 'a/b'"):
        load_record(tmp_path / "x.npy")


def test_a_plain_array_is_a_record_of_one(tmp_path):
    np.save(tmp_path / "x.npy", np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    record = load_record(tmp_path / "x.npy")
    assert list(record.arrays) == ["array"]
    assert (record.arrays["array"] == np.arange(6.0).reshape(2, 3)).all()


def test_meta_stands_beside_the_dump(tmp_path):
    path = save_record(tmp_path / "x", {"a": np.arange(2)}, meta={"side": "torch", "seed": 3})
    assert path == tmp_path / "x.npy"
    assert json.loads((tmp_path / "x.npy.json").read_text()) == {"side": "torch", "seed": 3}
    record = load_record(path)
    assert (record.side, record.meta["seed"]) == ("torch", 3)


@pytest.mark.parametrize("text", ["{", "[1]", "\xff"])
def test_unreadable_meta_is_an_error(tmp_path, text):
    save_record(tmp_path / "x.npy", {"a": np.arange(2)})
    (tmp_path / "x.npy.json").write_text(text)
    with pytest.raises(RecordError, match=r"x\.npy\.json.*\n.*\n  expected: a JSON object"):
        load_record(tmp_path / "x.npy")


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize(
    ("value", "found"),
    [
        (Call(os.system, "exit 1"), r"a call of (posix|nt)\.system"),
        ({"a": Call(eval, "1")}, r"a call of (builtins|__builtin__)\.eval"),
        ({"a": Call(np.load, "x")}, r"a call of numpy\S*\.load"),
        ({"a": [1, 2]}, "a value of type list at 'a'"),
        ({"a": {"b": "text"}}, "a value of type str at 'a/b'"),
        ({"a": np.array([{}, 1], dtype=object)}, "an object array of shape"),
        ({"a": np.zeros(2, dtype=[("x", "f4")])}, "an array of dtype|structured"),
        ([np.zeros(2)], "a pickled list|an object array of shape"),
    ],
)
def test_nothing_but_arrays_is_read_and_nothing_is_run(tmp_path, value, found, protocol):
    with pytest.raises(
        RecordError, match=rf"x\.npy: is not a dump\n  found: ({found}).*\n  expected: a dict of arrays"
    ):
        load_tree(write_pickled(tmp_path / "x.npy", value, protocol))


def test_missing_and_folder(tmp_path):
    with pytest.raises(RecordError, match=r"nope\.npy: no such file"):
        load_record(tmp_path / "nope.npy")
    with pytest.raises(RecordError, match=r"(?s)found: a folder.*--reference FOLDER --port FOLDER compares folders"):
        load_record(tmp_path)
    with pytest.raises(RecordError, match="no regular file"):
        load_record("/dev/null")


def test_every_truncation_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", {"a": np.arange(3.0), "b": {"c": np.float32(1)}})
    data = (tmp_path / "x.npy").read_bytes()
    for length in range(len(data)):
        (tmp_path / "x.npy").write_bytes(data[:length])
        with pytest.raises(RecordError):
            load_record(tmp_path / "x.npy")


def test_a_truncated_mapped_file_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", {"a": np.zeros(1_000_000)})
    with (tmp_path / "x.npy").open("r+b") as file:
        file.truncate(4_000_000)
    with pytest.raises(RecordError, match=r"ends .* bytes before an array's data"):
        load_record(tmp_path / "x.npy")


def test_a_dict_that_holds_itself_is_refused(tmp_path):
    tree = {"a": np.arange(2)}
    tree["self"] = tree
    with pytest.raises(RecordError, match="a dict that holds itself"):
        load_tree(write_pickled(tmp_path / "x.npy", tree))


def test_a_bomb_of_shared_dicts_is_refused_at_once(tmp_path):
    tree = {"a": np.arange(2)}
    for _ in range(40):
        tree = {str(n): tree for n in range(10)}
    with pytest.raises(RecordError, match="names in a file of"):
        load_record(write_pickled(tmp_path / "x.npy", tree))


def stream(body, head=b"{'descr': '|O', 'fortran_order': False, 'shape': ()}"):
    """A dump whose dict is what ``body`` puts on the stack."""
    header = head + b" " * (-(len(head) + 11) % 64) + b"\n"
    outer = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR(K\x01)cnumpy\ndtype\n(X\x02\x00\x00\x00O8K\x00K\x01tR"
        b"(K\x03X\x01\x00\x00\x00|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb\x89]"
    )
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\x80\x04" + outer + body + b"atb."


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR(K\x01K\x01\x85cnumpy\ndtype\n(X\x02\x00\x00\x00u1K\x00K\x01tR\x89C\x01atb"
LONG = text(b"x" * 400_000)
NESTED = b")q\x05" + b"0h\x05h\x05\x86q\x05" * 200
HASHES = b"".join(b"\x8a\x10" + (n * (2**61 - 1)).to_bytes(16, "little") + b"N" for n in range(20_000))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (stream(b"}(" + text(b"a") + b"c_codecs\nencode\nq\x02" + LONG + b"q\x03" + text(b"latin1") + b"q\x04\x86R"
                + b"h\x02h\x03h\x04\x86R0" * 30_000 + b"u"), "calls that make more"),
        (stream(b"}(" + LONG[:5] + LONG[5:] + b"}(" + b"".join(text(b"%d" % n) + (ARRAY + b"q\x05" if not n else b"h\x05")
                for n in range(60_000)) + b"uu"), "arrays and names of .* bytes in a file of"),
        (stream(b"}(" + b"".join(text(b"%d" % n) + (
            ARRAY.replace(b"K\x01\x85", b"J" + struct.pack("<i", 500_000) + b"\x85").replace(
                b"C\x01a", b"B" + struct.pack("<I", 500_000) + bytes(500_000)) + b"q\x05" if not n else b"h\x05")
            for n in range(20_000)) + b"u"), "arrays and names of .* bytes in a file of"),
        (stream(b"}(" + text(b"a") + ARRAY.replace(b"u1", b"S0").replace(b"K\x01\x85", b"\x8a\x08" + struct.pack("<q", 2**60) + b"\x85")
                .replace(b"C\x01a", b"C\x00") + b"u"), "an array of dtype"),
        (b"\x93NUMPY\x01\x00" + struct.pack("<H", 60_000) + b"{'shape': " + b"(" * 59_990, "a damaged header"),
        (stream(b"}(" + text(b"a") + NESTED + b"u"), "a value of type tuple"),
        (stream(b"}(" + HASHES + b"u"), "a key of more than 64 bits"),
        (stream(b"}r" + struct.pack("<I", 2**32 - 1)), "a place in the memo beyond the file's length"),
    ],
    ids=["one text encoded", "a long key", "one buffer", "no width", "brackets", "nested", "hashes", "memo"],
)  # fmt: skip
def test_a_few_bytes_take_neither_memory_nor_time(tmp_path, content, found):
    (tmp_path / "x.npy").write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(RecordError, match=found) as caught:
            load_record(tmp_path / "x.npy")
        assert tracemalloc.get_traced_memory()[1] < 128 * 2**20
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 1000


def test_archives_of_arrays(tmp_path):
    arrays = {
        "x": np.arange(6.0).reshape(2, 3),
        "labels": np.array([1, 2]),
        "f": np.asfortranarray(np.ones((2, 3), np.float32)),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        assert_same(arrays, read_npz(tmp_path / "a.npz"))
    np.savez_compressed(tmp_path / "zeros.npz", mask=np.zeros((1000, 1000)))
    assert read_npz(tmp_path / "zeros.npz")["mask"].shape == (1000, 1000)


def test_what_is_no_archive_of_arrays(tmp_path):
    np.save(tmp_path / "plain.npy", np.arange(3))
    np.savez(tmp_path / "objects.npz", a=np.array([None]))
    np.savez(tmp_path / "dict.npz", a={"b": np.arange(2)})
    np.savez(tmp_path / "cut.npz", a=np.arange(1000))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:-30])
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(400_000_000))
    for name, found in (
        ("plain.npy", "File is not a zip file"),
        ("objects.npz", "an object array of shape"),
        ("dict.npz", "a pickled dict"),
        ("cut.npz", "File is not a zip file"),
        ("bomb.npz", "arrays of 400,000,000 bytes, more than"),
        ("no.npz", "No such file"),
        (".", "no regular file"),
    ):
        with pytest.raises(RecordError, match=rf"cannot be read as \.npz of arrays\n  found: {found}"):
            read_npz(tmp_path / name)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": {"b": [1, 2]}}, "a/b: cannot be stored\n  found: builtins.list"),
        ({"a": None}, "found: builtins.NoneType"),
        ({"a": np.array([None])}, "an array of dtype object"),
        ({"a": np.zeros(2, "M8[D]")}, "an array of dtype datetime64"),
        ({(1,): np.zeros(2)}, "a key of type tuple"),
        ({"a": 2**70}, "an array of dtype object"),
    ],
)
def test_only_arrays_are_saved_and_an_earlier_dump_stays(tmp_path, value, message):
    path = save_record(tmp_path / "x.npy", {"old": np.arange(2)})
    with pytest.raises(RecordError, match=message) as caught:
        save_record(path, value)
    assert "x.npy" in str(caught.value)
    assert list(load_record(path).arrays) == ["old"]
    assert [file.name for file in tmp_path.iterdir()] == ["x.npy"]


def test_a_full_disk_leaves_the_earlier_dump_and_nothing_else(tmp_path, monkeypatch):
    path = save_record(tmp_path / "x.npy", {"old": np.arange(2)})
    monkeypatch.setattr(npy, "write_array_header_1_0", full_disk)
    with pytest.raises(RecordError, match=r"x\.npy: cannot be written\n  found: No space left"):
        save_record(path, {"new": np.zeros(2)})
    assert list(load_record(path).arrays) == ["old"]
    assert [file.name for file in tmp_path.iterdir()] == ["x.npy"]


def test_saving_copies_no_array(tmp_path):
    script = textwrap.dedent(
        """
        import sys, numpy as np
        from tipchain import save_record
        def peak():
            return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1])
        arrays = {f"k{n}": np.ones(5_000_000) for n in range(4)}
        before = peak()
        save_record(sys.argv[1], arrays)
        print(peak() - before)
        """
    )
    command = [sys.executable, "-W", "ignore", "-c", script, tmp_path / "x.npy"]
    done = completed(command, check=True)
    assert int(done.stdout) < 8_000  # KiB, of 160,000 saved


def dumps_of_small_arrays(folder):
    """Yield the bytes of dumps as NumPy and tipchain write them, with arrays of every shape and order."""
    shapes = [(), (1,), (0,), (2, 3), (1, 2, 3), (2, 1, 1, 3), (300,), (70_000,)]
    arrays = {f"{n}": np.arange(np.prod(shape), dtype="f4").reshape(shape) for n, shape in enumerate(shapes)}
    arrays |= {
        "fortran": np.asfortranarray(arrays["3"]),
        "text": np.array(["a", "b"]),
        "whole": np.arange(3, dtype=">i8"),
    }
    arrays |= {f"again {n}": np.arange(4.0) for n in range(60)}  # beyond what one byte of the memo counts
    np.save(folder / "numpy.npy", arrays)
    yield bytearray((folder / "numpy.npy").read_bytes())
    yield bytearray(save_record(folder / "own.npy", arrays).read_bytes())


def outcome_of(path):
    """Return what a dump holds, or the kind of the refusal."""
    try:
        tree = load_tree(path)
    except RecordError:
        return "refused"
    return {name: (one.dtype, one.shape, one.flags.f_contiguous, one.tobytes()) for name, one in tree.items()}


def test_usual_arrays_are_read_as_their_opcodes_say(tmp_path, monkeypatch):
    never = re.compile(b"(?!)")
    usual, file = pickle_stream._USUAL_ARRAY, tmp_path / "changed.npy"
    generator = np.random.default_rng(0)
    for data in dumps_of_small_arrays(tmp_path):
        changes = [(0, data[0])]
        for match in usual.finditer(data):  # what stands in an array's opcodes, and right behind them
            places = range(match.start(), min(match.end() + 12, len(data)))
            changes += [(at, int(byte)) for at in places for byte in generator.choice(256, 2)]
        assert len(changes) > 1000
        for at, byte in generator.permutation(changes)[:150].tolist():
            file.write_bytes(data[:at] + bytes([byte]) + data[at + 1 :])
            monkeypatch.setattr(pickle_stream, "_USUAL_ARRAY", never)
            slowly = outcome_of(file)
            monkeypatch.setattr(pickle_stream, "_USUAL_ARRAY", usual)
            assert outcome_of(file) == slowly, (at, byte)
