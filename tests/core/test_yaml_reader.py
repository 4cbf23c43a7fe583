"""Whatever stands in a YAML file, it is read or refused with its line, in bounded memory."""

import tracemalloc

import pytest

from tipchain.core.yaml_reader import MAX_DEPTH, load_yaml
from tipchain.errors import InputError

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("x: 1\na: 2024-13-45\n", 2, "found: '2024-13-45' as timestamp: month must be in 1..12"),
        ("a: !!int x\n", 1, "found: 'x' as int: invalid literal"),
        ("a: !!bool maybe\n", 1, "found: 'maybe' as bool"),
        ("a:\n  - " + "1" * 5000 + "\n", 2, "found: '11111.*11111' as int: Exceeds the limit"),
        ("a: 0x" + "f" * 3000, 1, "found: a whole number of more than 64 bits"),
        ("a: 1\nb: \x00\n", 2, "found: unacceptable character"),
        ("a: 1\nb: &b [1, *b]\n", 2, "is nested too deeply"),
        ("[" * 100_000, 1, f"is nested too deeply\n  expected: at most {MAX_DEPTH} levels"),
        ("a:\n  " + "{a: " * 100_000, 2, "is nested too deeply"),
        (BOMB, "[1-7]", "is too large\n  expected: at most 150,000 keys and values"),
        ("a: [" + "1," * 160_000 + "]", 1, "is too large\n  expected: at most 150,000 keys and values"),
    ],
)
def test_what_is_refused_has_a_line(tmp_path, text, line, found):
    path = tmp_path / "case.yaml"
    path.write_text(text)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=rf"case\.yaml:{line}: (.*\n  )?{found}") as caught:
            load_yaml(path)
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("text", "found"), [("", "nothing"), ("# only a remark\n", "nothing"), ("- 1\n", "list")])
def test_what_is_no_mapping_is_told_with_what_it_is(tmp_path, text, found):
    path = tmp_path / "case.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=rf"\n  found: {found}\n  expected: a mapping of keys"):
        load_yaml(path)


def test_a_huge_file_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "case.yaml"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(
        InputError, match="is too large\n  found: more than 10,000,000 bytes\n  expected: a case, as YAML"
    ):
        load_yaml(path)


def test_aliases_and_merges_that_save_writing_are_read(tmp_path):
    path = tmp_path / "case.yaml"
    shared = "base: &base {x: 1, y: [1, 2, 3]}\n" + "".join(f"k{n}: {{<<: *base, z: {n}}}\n" for n in range(300))
    path.write_text(shared)
    document = load_yaml(path)
    assert document.data["k299"] == {"x": 1, "y": [1, 2, 3], "z": 299}
    assert document.line("k299", "z") == 301
