"""Chinese texts: complete, with the places of the English ones, where a user reads them and nowhere else."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import untranslated
from alignment_samples import failing
from chain_samples import TEMPLATE, edit
from dashboard_samples import make_nights, page_of
from history_samples import report
from hypothesis import given
from hypothesis import strategies as st
from run_samples import CAUSE, aligned, verdict

from tipchain.cli import COMMANDS, main, parser_of
from tipchain.commands.options import leaves
from tipchain.core import language
from tipchain.core.language import (
    LANGUAGES,
    VARIABLE,
    catalogue,
    columns,
    cut,
    in_rows,
    padded,
    say,
    terminal_width,
    variable_set,
)
from tipchain.errors import Outcome
from tipchain.explain.findings import SourceLine
from tipchain.live.html import render
from tipchain.report.terminal import render_ending

PACKAGE = Path(__file__).resolve().parents[2] / "tipchain"
CHINESE = re.compile("[\u4e00-\u9fff]")


@pytest.fixture(autouse=True)
def english(monkeypatch):
    for name in (VARIABLE, *language.LOCALE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def chinese(monkeypatch):
    monkeypatch.setenv(VARIABLE, "zh")


# The catalogue.


@pytest.mark.parametrize("file", ["tipchain/locale/zh.po", "docs/reference.zh.po"])
def test_the_catalogue_has_whole_entries_and_none_twice(file):
    text = (PACKAGE.parent / file).read_text(encoding="utf-8")
    body = [one for one in text.splitlines() if one and not one.startswith("#")]
    assert not re.findall(r"^[<>=|]{7}", text, re.MULTILINE)
    found = re.findall(r'(msgid (?:"(?:[^"\\]|\\.)*"\n)+)msgstr (?:"(?:[^"\\]|\\.)*"\n)+', "\n".join(body) + "\n")
    assert re.sub(r'(msgid|msgstr) (?:"(?:[^"\\]|\\.)*"\n)+', "", "\n".join(body) + "\n") == ""
    assert len(found) == sum(one.startswith("msgid") for one in body) == sum(one.startswith("msgstr") for one in body)
    assert sorted(found) == sorted(set(found))


def places(text: str) -> list[str]:
    return sorted(re.findall(language.PLACE, text))


def test_every_message_is_translated_with_the_same_places():
    assert len(catalogue()) > 300
    for message, told in catalogue().items():
        assert CHINESE.search(told), message
        assert places(message) == places(told), message
        assert len(set(places(message))) == len(places(message)), message
        assert message.count("`") == told.count("`"), message
        assert re.fullmatch(language.EDGES, message)["text"] == message, "no text is looked up with the marks around it"


SOURCE = '''
def f(x, items, path):
    """A docstring says nothing."""
    if x == "not a message":
        log.info("nor is this one")
    names = "nor are these names".split()
    count = many(len(items), "new item")
    print(f"{many(x, 'entry', 'entries')} of {count}")
    total = len(items)
    return f"{total} items are in {path}" + (f", {x:.3g} of them new" if x else "") + f" `{x.name}`", "a code"
'''


def test_messages_are_found_with_every_choice_and_named_places(tmp_path):
    (tmp_path / "one.py").write_text(SOURCE)
    assert untranslated.messages(tmp_path / "one.py") == [
        "1 new item",
        "{n} new items",
        "1 entry of {n}",
        "{n} entries of {n2}",
        "{n} items are in {cpath}, {n2} of them new `{cname}`",
        "{n} items are in {cpath} `{cname}`",
        "a code",
    ]


def test_messages_of_templates_are_found_and_text_that_nothing_translates(tmp_path):
    (tmp_path / "one.html").write_text(
        '<p class="no message">left in English {{ _("a " ~ ("new " if x else "") ~ one.name) }}'
        '{{ _(many(n, "old item") ~ " here") }}</p>{% for one in ("of a kind", "x") %}{% endfor %}'
    )
    found = untranslated.messages(tmp_path / "one.html")
    assert found == ["left in English", "a new {cname}", "1 old item here", "{n} old items here", "of a kind"]


@pytest.mark.parametrize("name", sorted(path.relative_to(PACKAGE).as_posix() for path in untranslated.modules(PACKAGE)))
def test_every_message_is_in_the_catalogue(name, chinese):
    assert untranslated.untranslated(PACKAGE / name) == []


# Who reads what.


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "de_DE.UTF-8", "LC_MESSAGES": "zh_TW"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LC_ALL": "zh_CN", VARIABLE: "en"}, "en"),
    ],
)
def test_the_language_is_that_of_the_locale_unless_one_is_chosen(monkeypatch, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert language.language() == expected


def test_what_is_chosen_holds_for_a_while_and_for_child_processes():
    with variable_set(language.VARIABLE, "zh"):
        assert os.environ[VARIABLE] == "zh"
        with variable_set(language.VARIABLE, None):
            assert language.language() == "zh"
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "own 2.6e-07 (1.01 times the reference's own float32 error), inherited undefined",
            "自身误差 2.6e-07（为参考实现自身 float32 误差的 1.01 倍），继承误差无定义",
        ),
        (
            "in eval mode the port raises, the reference does not: nothing ran: no stage was judged",
            "在 eval 模式下移植抛出异常，参考实现没有：没有运行任何命令：没有判定任何阶段",
        ),
        ("not close · mean 0.1 · allowed mean <= 1e-05", "超出允许值 · 平均差 0.1 · 允许 mean <= 1e-05"),
        (
            "NOT the same model: `head`: it lacks `F.relu` after `4` in `head` (net/port.py:48)",
            "模型不一致：`head`：在 `head` 中 `4` 之后缺少 `F.relu`（net/port.py:48）",
        ),
        ("pass `epsilon=1e-05; x: y` to `bn`", "为 `bn` 传入 `epsilon=1e-05; x: y`"),
        (
            "nothing was compared: `a` changes in the port only, `c` changes otherwise; look at your code",
            "没有比较任何内容：`a` 只在移植中改变，`c` 的变化与参考实现不同；look at your code",
        ),
        ("2.13.0 on cpu, 1 thread", "cpu 上的 2.13.0，1 个线程"),
        ("what nobody has said yet", "what nobody has said yet"),
    ],
)
def test_a_text_is_said_with_all_that_is_in_it(chinese, text, expected):
    assert say(text) == expected


def test_english_texts_stay_as_they_are():
    assert all(say(one) == one for one in catalogue())


# Where it is shown.


def test_the_option_wins_over_the_locale_and_json_and_junit_are_english(shown, tmp_path, monkeypatch):
    (tmp_path / "report.json").write_text(json.dumps(report()))
    words = ("report", ".", "--json", "out.json", "--junit", "out.xml")
    english, _ = shown(*words)
    files = [(tmp_path / name).read_bytes() for name in ("out.json", "out.xml")]
    assert not CHINESE.search(english)
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert "退出码" in shown(*words)[0]
    assert shown(*words, "--lang", "en")[0] == english
    assert [(tmp_path / name).read_bytes() for name in ("out.json", "out.xml")] == files


def test_a_page_is_in_its_readers_language_and_code_is_not(chinese):
    report = failing()
    text = render(report)
    assert '<html lang="zh-CN">' in text
    for one in ("移植模型与参考模型不一致", "首个出现差异的层", "构造上的差异", "重现本次运行"):
        assert one in text
    assert f"<code>{report.diagnoses[0].code}</code>" in text or report.diagnoses[0].code in text
    assert report.to_json() == failing().to_json()
    assert not CHINESE.search(report.to_json())
    assert not CHINESE.search(report.text)


# Columns.


def test_chinese_characters_take_two_columns():
    assert [columns(one) for one in ("abc", "误差", "误差 1", "（a）", "…")] == [3, 4, 6, 5, 1]
    assert padded("日志", 6) == "日志  "
    assert cut("误差超出允许值", 9) == "误差超出…"
    assert cut("误差超出", 8) == "误差超出"
    assert cut("resnet fails in", 15) == "resnet fails in"
    assert cut("resnet fails in three", 16) == "resnet fails in…"
    assert cut("log /runs/nights/20260101/items/resnet/log", 20) == "log /runs/nights/20…"


def test_lines_break_beside_characters_and_never_before_a_mark_that_ends_something():
    text = "移植模型与参考模型不一致，原因在 `classifier` 中。"
    rows = in_rows(text, 24)
    assert "".join(rows).replace(" ", "") == text.replace(" ", "")
    assert all(columns(one) <= 24 for one in rows)
    assert not any(one.startswith(("，", "。")) for one in rows)


@given(st.text(alphabet="误差，。ab `:1", max_size=80), st.integers(8, 40))
def test_no_line_is_wider_than_it_may_be_and_nothing_is_left_out(text, width):
    rows = in_rows(text, width)
    assert "".join("".join(rows).split()) == "".join(text.split())
    assert all(columns(one) <= width or len(re.findall("误|差|[ab`:1]+", one)) == 1 for one in rows)


def test_further_lines_stand_below_the_head_whose_color_takes_no_columns():
    head = f"{language.paint('失败', '31', color=True)}  "
    assert in_rows("误差超出，见 log", 12, head) == [f"{head}误差超", "      出，见", "      log"]
    assert language.table([("名", "a"), ("name", "b")]) == ["名    a", "name  b"]


@pytest.mark.parametrize(
    "text", ["it took 1.5 s of 2 GiB", "less than 1 % of the tolerance", "530 times the tolerance"]
)
def test_a_number_stays_with_its_unit(text):
    for width in range(1, 40):
        assert not any(re.search(r"\d$", row) for row in in_rows(text, width))


def test_a_path_stays_whole_and_a_table_is_as_wide_as_its_cells():
    path = f"/runs/{'x' * 300}/report.json"
    assert in_rows(f"see {path} for more", 80) == ["see", path, "for more"]
    assert language.table([(path, "100 %"), ("b", path)]) == [f"{path}  100 %", f"b{' ' * len(path)} {path}"]


@pytest.mark.parametrize("words", [["--version"], ["--version", "--lang", "zh"]])
def test_rich_is_not_loaded_for_a_version(words):
    code = f"import sys, tipchain.cli\ntry: tipchain.cli.main({words})\nfinally: assert 'rich' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Whole outputs.


@pytest.fixture
def shown(tmp_path, monkeypatch, capsys):
    """Return a function that runs a command line in a folder with two parameter files: what it prints, and its exit code."""
    wrong = ("infer_quant", "infer_quant:Fasle"), ("gpu_list", "gpu_list:-1|0,0")
    (tmp_path / "wrong.txt").write_text(edit(TEMPLATE, *wrong))
    (tmp_path / "net.txt").write_text(TEMPLATE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words: str) -> tuple[str, int]:
        code = main(words)
        done = capsys.readouterr()
        return done.out + done.err, code

    return run


LINTED = """\
wrong.txt:4: 错误：gpu_list: '0,0' 中同一 GPU 出现两次；应为每个 GPU 一次，例如
    0,1 [no-shell]
"""
PLANNED = """\
net.txt，模式 lite_train_lite_infer，套件 tipchain：7 条命令
日志位于 test_tipc/output/net/lite_train_lite_infer/runs/RUN

norm_train;gpus=-1
"""
ENDED = """\
链条已跑通，但 forward/logits：again

PASS   train[norm]  9.0 秒，loss=0.5 top1=nan
FAIL   forward      2 项检查中有 1 项失败：logits: again

2 项通过，1 项失败，用时 12.5 秒，退出码 1
"""


def test_lint_in_chinese(shown):
    text, code = shown("--lang", "zh", "lint", "wrong.txt", "-v")
    assert (code, LINTED in text) == (1, True)
    assert text.endswith("\n1 个文件：2 项出错，3 项警告，9 项提示\n")
    assert all(columns(line) <= 80 for line in text.splitlines())
    assert not left_english(text)


def left_english(text: str) -> list[str]:
    return [one[0] for one in untranslated.ENGLISH.finditer(untranslated.CALL.sub("", text))]


def test_an_alignment_in_chinese(chinese):
    cause = replace(
        CAUSE,
        message="`stem.bn`: its `epsilon` is 0.001, the reference's 1e-05",
        port_path="stem.bn",
        reference_place=None,
        place=SourceLine(file="nets/port.py", line=34, code="self.bn = nn.BatchNorm2D(64, epsilon=1e-3)"),
        corrected="self.bn = nn.BatchNorm2D(64, epsilon=1e-05)",
        evidence="the reference is constructed this way; relative error 0.0031 before, 2.1e-16 with this changed; 14 runs in float64",
        fix="pass `epsilon=1e-05` to `stem.bn`",
        explains=("forward/logits", "backward/gradient/stem.conv.weight"),
    )
    reason = "not close · 3 / 40 outside · mean 5.3 · worst at (1, 9): expected 17.4, actual 0.43 · allowed rtol 1e-05, atol 1e-08"
    failed = [verdict(one, Outcome.FAIL, reason, share=530.0) for one in cause.explains]
    report = aligned(
        *failed, diagnoses=(cause,), notes=("judged by the reference's own rounding, 1 gradients: stem.conv.weight",)
    )
    text = render_ending(report)
    assert text.startswith(
        "模型不一致：`stem.bn`：`epsilon` 为 0.001，参考实现为 1e-05\n  位置  nets/port.py:34: self.bn = "
    )
    assert "\nFAIL   forward   唯一的检查因 `stem.bn` 失败\n" in text
    code = r"`[^`]*`|self\.bn.*|FAIL|tipchain align.*|\b[\w./]+\.(?:py|weight)\b"
    assert left_english(re.sub(code, "", text)) == []


def test_a_printed_report_of_live_models_is_in_chinese_and_the_stored_text_is_not(chinese):
    report = failing()
    said = str(report).splitlines()
    assert said[0] == "FAIL：移植模型与参考模型不一致；比较了 19 个层"
    assert next(line for line in said if line.startswith("首个出现差异的层："))
    assert next(line for line in said if line.startswith("  修改："))
    assert report.text.startswith("FAIL: the port is not the reference; 19 layers compared\n")
    assert not CHINESE.search(report.text)


def test_plan_in_chinese(shown):
    text, code = shown("--lang", "zh", "plan", "net.txt", "lite_train_lite_infer")
    assert (code, text[: len(PLANNED)]) == (0, PLANNED)
    assert "    日志：train-norm_train-gpus=-1.log\n" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("lint",), "错误：tipchain lint：缺少必需的参数：FILE\n  参见 tipchain lint --help\n"),
        (("plan", "net.txt", "lite"), "错误：未知的模式 'lite'\n  应为以下之一：lite_train_lite_infer, "),
        (("plan", "wrong.txt", "whole_infer"), "错误：wrong.txt:39: infer_quant: 'Fasle' 既不是 True 也不是 False\n"),
    ],
)
def test_usage_errors_in_chinese(shown, words, expected):
    text, code = shown("--lang", "zh", *words)
    assert (code, text[: len(expected)]) == (2, expected)


def test_the_end_of_a_run_in_chinese(shown, tmp_path):
    (tmp_path / "report.json").write_text(json.dumps(report()))
    assert shown("--lang", "zh", "report", ".") == (ENDED, 1)
    text, _ = shown("--lang", "zh", "-v", "report", ".")
    assert "\n结果        秒数  命令和日志，位于\n" in text
    assert "\n结果     对象：原因\n" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [(("--lang=zh", "-q"), ("--lang=zh", "-q")), (("-v", "--color", "never"), ("-v", "--color", "never"))],
)
def test_options_of_every_command_stand_before_it_too(shown, tmp_path, before, after):
    (tmp_path / "report.json").write_text(json.dumps(report()))
    assert shown(*before, "report", ".") == shown("report", ".", *after)


def test_what_no_command_has_is_refused_before_it_as_behind_it(shown):
    for words in (("-q", "plan", "net.txt"), ("plan", "net.txt", "-q")):
        assert shown(*words) == ("error: tipchain plan: unrecognized arguments: -q\n  see tipchain plan --help\n", 2)
    assert shown("--lang", "fr", "lint", "net.txt")[1] == 2
    assert shown("--lang", "zh")[0].startswith("用法：tipchain ")


def test_every_help_is_in_chinese_and_80_columns(chinese, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in COMMANDS:
        parser = parser_of(name)
        assert all(tuple(one._option_string_actions["--lang"].choices) == LANGUAGES for one in leaves(parser)), name
        for one in {id(one): one for one in (parser, *leaves(parser))}.values():
            text = one.format_help()
            usage, told = text[: text.index("\n\n")].splitlines(), text[text.index("\n\n") :]
            assert all(columns(line) <= 80 for line in usage), one.prog
            start = columns(f"用法：{one.prog} ")
            assert {len(line) - len(line.lstrip()) for line in usage[1:]} <= {start}, one.prog
            assert not re.search("(?m)[\u4e00-\u9fff]:$", told), one.prog
            left = left_english(re.sub(r"\{[^}]*\}|\(model, optimizer[^)]*\)", "", told))
            assert not left, (one.prog, left)
            wide = [line for line in told.splitlines() if columns(line) > 80]
            assert [line for line in wide if len(line.split()) > 1] == [], one.prog


def test_a_dashboard_in_chinese(chinese, tmp_path):
    text = page_of(make_nights(tmp_path / "tipchain-nights"), tmp_path)
    plain = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", "\n", text, flags=re.DOTALL)
    for one in (
        "新近失败：",
        "仍然失败：",
        "与前一夜相比的其他变化：",
        "5 个任务中有 2 个未通过",
        "任务用时",
        "夜间运行: suite, other",
    ):
        assert one in plain
    names = r".*(resnet|mvf|alexnet|vgg|old|new|suite, other|train infer python|top1 |avg_ms of |img src).*"
    assert [line for line in plain.splitlines() if left_english(line) and not re.fullmatch(names, line)] == []
    assert all(map(CHINESE.search, re.search('data-text="(.*?)" data-one="(.*?)" data-all="(.*?)"', text).groups()))


@pytest.mark.parametrize(
    ("columns", "terminal", "width"), [("100", 120, 100), ("10", 120, 60), ("wide", 120, 120), ("", None, 80)]
)
def test_a_terminals_width(monkeypatch, columns, terminal, width):
    def size(_descriptor):
        if terminal is None:
            raise OSError
        return os.terminal_size((terminal, 24))

    monkeypatch.setattr(os, "get_terminal_size", size)
    monkeypatch.setattr(sys, "__stdout__", SimpleNamespace(fileno=lambda: 1))
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == width
