"""What a case says about the stage ``distributed``."""

from __future__ import annotations

from dataclasses import dataclass, field

from tipchain.yaml_lines import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedSettings:
    """The stage that holds training on several processes against one process with the same global batch.

    Attributes:
        processes: the number of processes. On GPUs each process needs its own GPU.
        iterations: the number of training steps.
        batch_size: samples in the global batch, a multiple of ``processes``. Default: the smallest multiple that is not smaller
            than the batch of the fake inputs.
        learning_rate: the initial learning rate of both runs.
        training: whether the models are in train mode. Random layers are off then.
        find_unused_parameters: the argument of ``paddle.DataParallel``, for models that do not use all parameters in each step.
        timeout_s: the time limit of the processes, in seconds.
    """

    processes: int = 2
    iterations: int = 3
    batch_size: int | None = None
    learning_rate: float = 1e-4
    training: bool = False
    find_unused_parameters: bool = False
    timeout_s: float = field(default=300.0, repr=False)

    def global_batch(self, fake: int) -> int:
        """Return the samples of the global batch, where the fake inputs have ``fake``."""
        return self.batch_size or -(-fake // self.processes) * self.processes


def read(reader: Reader) -> DistributedSettings:
    """Read the mapping ``distributed`` of a case.

    Raises:
        CaseError: a value that cannot be; the message names file, line and key.
    """
    distributed = reader.mapping("distributed", default={})
    assert distributed is not None
    processes = distributed.integer("processes", 2, least=2)
    settings = DistributedSettings(
        processes=processes,
        iterations=distributed.integer("iterations", 3, least=1),
        batch_size=_batch_size(distributed, processes),
        learning_rate=distributed.positive("learning_rate", 1e-4),
        training=distributed.flag("training", default=False),
        find_unused_parameters=distributed.flag("find_unused_parameters", default=False),
        timeout_s=distributed.positive("timeout_s", 300.0),
    )
    distributed.done()
    return settings


def _batch_size(distributed: Reader, processes: int) -> int | None:
    if distributed.data.get("batch_size") is None:
        distributed.asked.append("batch_size")
        return None
    size = distributed.integer("batch_size", processes, least=1)
    if size % processes:
        raise distributed.error(
            "batch_size", "cannot be shared equally", found=f"{size} samples on {processes} processes",
            expected=f"a multiple of {processes}",
        )  # fmt: skip
    return size
