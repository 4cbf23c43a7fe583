"""The stages of `tipchain.align` around the models: data, metrics and deployment code, as a user gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tipchain.errors import UsageError
from tipchain.live.arguments import check_pair
from tipchain.live.predictions import PREDICT, check_predictions
from tipchain.parity.findings import PieceCheck
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.pieces.data import check_data
from tipchain.parity.pieces.metrics import check_metrics

DataPair = tuple[Any, Any]
DATA_STAGES = ("data", "train_data")
"""The stages that data may be given for; a pair alone is that of ``data``."""
METRIC_STAGE = "metric"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
    """What surrounds the models: data, metrics, deployment code.

    Attributes:
        data: the reference's and the port's source by stage.
        samples: raw samples, where sources are transforms.
        metrics: the reference's and the port's; None without any.
        predict: deployment code of both; None without any.
    """

    data: Mapping[str, DataPair] = field(default_factory=dict)
    samples: Sequence[Any] | None = None
    metrics: DataPair | None = None
    predict: DataPair | None = None

    @classmethod
    def of(
        cls, data: DataPair | Mapping[str, DataPair] | None, samples: Sequence[Any] | None, metrics: DataPair | None,
        predict: DataPair | None = None,
    ) -> Fed:  # fmt: skip
        """Return what was given.

        Raises:
            UsageError: something is no pair, a stage has another name, or samples stand alone or are none.
        """
        given = dict(data) if isinstance(data, Mapping) else {} if data is None else {DATA_STAGES[0]: data}
        for name, pair in (*given.items(), *([(METRIC_STAGE, metrics)] if metrics is not None else [])):
            if name not in (*DATA_STAGES, METRIC_STAGE) or (name == METRIC_STAGE and pair is not metrics):
                raise UsageError(
                    f"data: {name!r} is no stage\n  expected: {' or '.join(map(repr, DATA_STAGES))}"
                )
            found: Any = pair
            if not isinstance(found, tuple | list) or len(found) != 2:
                what = "metrics" if name == METRIC_STAGE else "data"
                raise UsageError(f"{what} is a {type(found).__name__}\n  expected: a pair (reference, port)")
        check_pair(PREDICT, predict)
        if samples is not None and not given and predict is None:
            raise UsageError(
                "samples were given without data\n  expected: data=(reference_transform, port_transform), or predict="
            )
        if samples is not None and len(samples) == 0:
            raise UsageError("samples are empty: nothing to give the transforms")
        return cls(data=given, samples=samples, metrics=metrics, predict=predict)

    def check_data(self, sides: tuple[LiveSide, LiveSide], seed: int) -> Iterator[tuple[str, PieceCheck]]:
        """Yield the stages of data with what they came to."""
        for stage, pair in self.data.items():
            yield stage, check_data(sides, (pair[0], pair[1]), samples=self.samples, seed=seed, path=stage)

    def check_metrics(self, sides: tuple[LiveSide, LiveSide], outputs: Any, labels: Any) -> PieceCheck:
        """Return what the metrics came to, given the reference's outputs, if there are any, and the labels.

        Raises:
            UsageError: there are no metrics.
        """
        if self.metrics is None:
            raise UsageError("no metrics were given")
        usable = None if labels is None else outputs
        return check_metrics(
            sides, (self.metrics[0], self.metrics[1]), usable, labels if usable is not None else None
        )

    def check_predictions(
        self, sides: tuple[LiveSide, LiveSide], models: tuple[Any, Any], inputs: Any, seed: int, *, causes: bool,
    ) -> PieceCheck:  # fmt: skip
        """Return what deployment code came to, given the raw samples, or the inputs where there are none.

        Raises:
            UsageError: there is no such code.
        """
        if self.predict is None:
            raise UsageError("no deployment code was given")
        own = dict(inputs) if isinstance(inputs, Mapping) else inputs
        raws: Sequence[Any] = [own] if self.samples is None else self.samples
        return check_predictions(
            sides, models, (self.predict[0], self.predict[1]), raws, seed=seed, causes=causes
        )
