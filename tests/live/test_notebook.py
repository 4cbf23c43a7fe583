"""What a notebook shows of a report, and the notebook of the docs, run from its first cell to its last."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from alignment_samples import failing

from tipchain.live.report import AlignmentReport

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs/how-to/wrong_port.ipynb"


def html_of(report: AlignmentReport) -> str:
    return report._repr_html_()


def test_a_cell_shows_the_verdict_stages_causes_and_differences_of_construction():
    report = failing()
    text = html_of(report)
    assert text.index("the port is not the reference") < text.index("Stages") < text.index("Other causes")
    assert report.diagnoses[0].code in text
    assert "Fix: " in text


def test_a_cell_runs_and_loads_nothing_and_changes_nothing_else_of_the_notebook():
    tags: list[tuple[str, dict[str, str | None]]] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append((tag, dict(attrs)))
    parser.feed(html_of(failing()))
    assert not {tag for tag, _ in tags} & {"script", "button", "link", "iframe", "img", "html", "body", "main"}
    for _, attributes in tags:
        assert not {name for name in attributes if name == "id" or name.startswith("on") or name == "src"}
    style = re.search(r"<style>(.*?)</style>", html_of(failing()), re.DOTALL)[1]
    selectors = [one for line in style.strip().splitlines() for one in line.partition("{")[0].split(",")]
    assert selectors
    assert all(one.strip().startswith(".tipchain-report ") for one in selectors)


def test_the_notebooks_links_lead_somewhere():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    targets = [one for cell in cells for one in re.findall(r"\]\(([^)]+)\)", "".join(cell["source"]))]
    assert targets
    for target in targets:
        assert (NOTEBOOK.parent / target).is_file(), target


@pytest.mark.frameworks
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_of_the_docs_runs_and_finds_the_mistake():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    stored = outputs(notebook)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    ran = outputs(notebook)
    assert "the port is not the reference" in ran
    assert "False norm epsilon" in ran
    assert "epsilon=0.001" in ran
    assert "PASS: the port is the reference" in ran
    # What readers see without running it is what it says now.
    for line in ("the port is not the reference", "False norm epsilon", "PASS: the port is the reference"):
        assert line in stored


def outputs(notebook) -> str:
    shown = [one for cell in notebook.cells for one in cell.get("outputs", ())]
    return "\n".join(str(one.get("text", "")) + str(one.get("data", {}).get("text/html", "")) for one in shown)
