"""Inference on a phone with Paddle Lite: the program's configuration is pushed there, and it runs for each setting.

tipchain reads the files and plans the commands; they need ``adb``, a phone, and Paddle Lite's library for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from tipchain.chain.kinds.base import Chain, Layout, Request, choose_layout, read_lines
from tipchain.chain.params import check_folder_name, plain_list, split_words
from tipchain.chain.plan import Command, Plan
from tipchain.chain.slots import legacy_slots

NAME = "lite"
FOLDER = "deploy/lite"
"""Where the originals keep the program's configuration."""
LAYOUTS: Sequence[Layout] = (
    Layout(
        suite="paddleclas",
        text="""=lite_params device:runtime_device folder:lite_arm_work_path library:lite_arm_so_path
        model_name:clas_model_file program:inference_cmd threads:--num_threads_list infer_batch:--batch_size_list
        precision:--precision_list""",
    ),
)
MEANINGS: Mapping[str, str] = {
    "device": "what the phone computes on",
    "folder": "folder on the phone",
    "library": "Paddle Lite's library for the phone",
    "model_name": "the model",
    "program": "program and arguments, on the phone",
    "threads": "numbers of CPU threads",
    "infer_batch": "batch sizes",
    "precision": "precisions",
}


def plan(request: Request) -> Plan:
    """Return the plan of a file; every command is skipped with what is missing.

    Raises:
        ParamsError: the file does not fit the layout, or a value is impossible.
    """
    layout = choose_layout(request, LAYOUTS)
    if request.legacy:  # such a file begins with its first line
        slots = legacy_slots(f"=\n{request.text}", request.file.path, layout)
    else:
        slots = read_lines(request, layout)
    model, program = slots["model_name"], slots["program"]
    check_folder_name(model, model.value)
    adb = replace(program, value="adb")
    chain = Chain(request, kind=NAME, suite=layout.suite, model=model.value, python=adb)
    folder = slots["folder"].value
    there = " ".join(folder + word for word in split_words(program.value, program)[:3])
    lists = [plain_list(slots[role].value) for role in ("threads", "infer_batch", "precision")]
    for threads, batch, precision in product(*lists):
        label = f"threads={threads};bs={batch};precision={precision}"
        push = Command(
            id=label, step="push", argv=("adb", "push", "config.txt", folder), cwd=FOLDER, skip=missing(), leg=NAME
        )
        infer = Command(
            id=label,
            step="infer",
            argv=("adb", "shell", f"export LD_LIBRARY_PATH={folder}; {there}"),
            cwd=FOLDER,
            needs=(chain.add(push),),
            skip=missing(),
            leg=NAME,
        )
        log = f"lite_{model.value}_runtime_device_{slots['device'].value}_precision_{precision}"
        chain.add(infer, log=f"{log}_batchsize_{batch}_threads_{threads}.log")
    return chain.plan(results_log="results.log", status="{model} - {command} - {log} ")


def missing() -> str:
    """Return why nothing is run here."""
    absent: Iterator[str] = (name for name in ("adb",) if shutil.which(name) is None)
    return "".join(f"{name} is not here; " for name in absent) + "needs a phone and Paddle Lite's library for it"
