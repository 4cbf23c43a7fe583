"""The stage train_data: values, orders by their properties, augmentation by distributions."""

import numpy as np
import pytest
from stage_records import NumpyFramework, judge_recordings, make_bench, outcomes, reasons

from tipchain.errors import UsageError
from tipchain.parity.settings import TrainDataSettings
from tipchain.parity.stages.train_data import record

LENGTH = 22
PIXELS = (
    np.random.default_rng(0)
    .normal(np.arange(LENGTH), 1, size=(3, 12, 12, LENGTH))
    .astype(np.float32)
    .transpose(3, 0, 1, 2)
)


class Images:
    """Images of their own brightness each; ``read`` may change what a sample holds."""

    def __init__(self, length=LENGTH, read=None):
        self.length, self.read = length, read

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        sample = PIXELS[index % LENGTH], index % 5, f"train/{index}.png"
        return self.read(*sample, index) if self.read else sample


def shuffle(seed, epoch, length):
    return np.random.default_rng([seed, epoch]).permutation(length)


def loader_of(order=shuffle, drop_last=False):
    def build_loader(dataset, batch_size, seed, epoch):
        numbers = list(order(seed, epoch, len(dataset)))
        for start in range(0, len(numbers), batch_size):
            batch = numbers[start : start + batch_size]
            if not (drop_last and len(batch) < batch_size):
                images, labels, files = zip(*(dataset[int(number)] for number in batch), strict=True)
                yield np.stack(images), np.array(labels), list(files)

    return build_loader


def augmentation_of(*, flip=0.5, scale=(0.08, 1.0), bright=0.0, salt=1, images=None):
    def build_augmentation(root, seed):
        generator, dataset = np.random.default_rng([seed, salt]), Images()

        def draw(number):
            share, flipped = generator.uniform(*scale), bool(generator.random() < flip)
            size = max(1, round(12 * share**0.5))
            left, top = (int(generator.integers(12 - size + 1)) for _ in range(2))
            image = dataset[number][0][:, top : top + size, left : left + size] + bright
            drawn = {"box": (left, top, size), "scale": share, "flip": flipped}
            return (image[..., ::-1] if flipped else image), drawn

        return draw

    return build_augmentation


GOOD = {"dataset": lambda root, split: Images(), "loader": loader_of(), "augmentation": augmentation_of()}
PORT = GOOD | {"augmentation": augmentation_of(salt=2)}


def compare(port, reference=None, *, seed=0, **settings):
    kinds = {"draws": 200, "samples": 8, **settings}
    recorded = [
        record(make_bench(NumpyFramework(), side, training_data=TrainDataSettings(**kinds), seed=seed))
        for side in (reference or GOOD, PORT | port)
    ]
    return judge_recordings("train_data", *recorded)


def faults(port, reference=None, **settings):
    return reasons(compare(port, reference, **settings), "FAIL", "ERROR", "SKIP")


def fault(name, port, reference=None, **settings):
    """Return the reason why the one subject fails that must; all others must pass."""
    found = faults(port, reference, **settings)
    assert set(found) == {name}, found
    return found[name]


def test_equal_data_pass():
    judged = compare({})
    assert set(outcomes(judged).values()) == {"PASS"}
    assert {
        "length",
        "dataloader_0",
        "label_1",
        "files",
        "batches",
        "permutation",
        "shuffle",
        "repeat",
        "box[2]",
        "scale",
        "flip",
        "pixels/mean",
        "pixels/mean[2]",
        "pixels/left_minus_right",
    } <= set(outcomes(judged))
    said = reasons(judged, "PASS")
    assert said["batches"] == "6 batches of 4, the last of 2, in 2 epochs"
    assert said["shuffle"] == "both sides give samples shuffled anew in every epoch"
    assert "8 of 22 samples were compared by value" in judged.notes


@pytest.mark.parametrize("seeds", [(100, 101), pytest.param(range(10), marks=pytest.mark.nightly)], ids=["few", "many"])
def test_no_false_alarm_over_seeds(seeds):
    assert not {seed: found for seed in seeds if (found := faults({}, seed=seed, draws=400))}


def test_another_value_label_or_file_is_named():
    def dataset(read):
        return {"dataset": lambda root, split: Images(read=read)}

    found = faults(dataset(lambda image, label, file, index: (image + 1e-3 * (index == 5), label, file)))
    assert set(found) == {"dataloader_0"}
    assert "worst at (2," in found["dataloader_0"]
    found = faults(dataset(lambda image, label, file, index: (image, label + (index == 0), file)))
    assert set(found) == {"label_0"}
    found = faults(dataset(lambda image, label, file, index: (image, label, file[::-1])))
    assert "first at sample 0: expected train/0.png" in found["files"]


def test_a_repeated_and_a_missing_sample_are_named():
    def order(seed, epoch, length):
        numbers = shuffle(seed, epoch, length)
        return np.where(numbers == 7, 3, numbers) if epoch == 1 else numbers

    reason = fault("permutation", {"loader": loader_of(order)})
    assert reason.endswith("epoch 1 has sample 3 more than once and lacks sample 7")
    found = faults({"loader": loader_of(lambda *args: [n for n in shuffle(*args) if n != 7])})
    assert found["permutation"] == "samples in an epoch: expected 22 of 22, actual 21"
    assert "batches" in found


def test_samples_drawn_with_replacement_are_compared_by_frequency():
    def order(power, salt):
        return lambda seed, epoch, length: (
            np.random.default_rng([seed, epoch, salt]).random(5 * length) ** power * length
        ).astype(int)

    def judge(power):
        many = {"dataset": lambda root, split: Images(400)}
        return faults(many | {"loader": loader_of(order(power, 1))}, GOOD | many | {"loader": loader_of(order(1, 2))})

    assert judge(1) == {}
    assert "not equally often" in judge(1.5)["permutation"]
    found = faults({}, GOOD | {"loader": loader_of(order(1, 2))})
    assert found["permutation"].startswith("expected samples drawn with replacement")


def test_a_port_that_never_reshuffles_is_named():
    reason = fault("shuffle", {"loader": loader_of(lambda seed, epoch, length: shuffle(seed, 0, length))})
    assert reason == ("expected shuffled anew in every epoch, actual in one and the same shuffled order in every epoch")


def test_a_port_whose_order_does_not_follow_the_seed_is_named():
    generator = np.random.default_rng(0)
    reason = fault("repeat", {"loader": loader_of(lambda seed, epoch, length: generator.permutation(length))})
    assert reason == "epoch 0 again after the same seed: expected the same order, actual another order"


def test_drop_last_is_named():
    words = "epoch 0: expected 6 batches of 4, the last of 2, actual 5 batches of 4, the last of 4: the port leaves out"
    found = faults({"loader": loader_of(drop_last=True)})
    assert found["batches"].startswith(words)
    assert "(drop_last)" in found["batches"]
    found = faults({}, GOOD | {"loader": loader_of(drop_last=True)})
    assert "the port keeps a smaller last batch that the reference leaves out (drop_last)" in found["batches"]


def test_orders_without_shuffling_must_be_equal():
    def loader(*first):
        return {"loader": loader_of(lambda *_: (*first, *range(2, LENGTH)))}

    assert faults(loader(0, 1), GOOD | loader(0, 1)) == {}
    few = {"dataset": lambda root, split: Images(4), "loader": loader_of()}
    reason = fault("shuffle", few, GOOD | few)
    assert "too few to tell" in reason


def test_a_loader_without_batches_fails():
    found = faults({"loader": lambda *_: iter(())})
    assert found["batches"] == "the loader of the port gave no batch"


def test_a_builder_on_one_side_alone_is_an_error():
    judged = compare({"loader": None, "augmentation": None})
    assert reasons(judged, "ERROR") == {
        "loader": "only the reference names a builder `loader`: nothing to compare",
        "augmentation": "only the reference names a builder `augmentation`: nothing to compare",
    }


def test_without_builders_values_are_compared_and_the_rest_is_noted():
    bare = {"loader": None, "augmentation": None}
    judged = compare(bare, GOOD | bare)
    assert set(outcomes(judged)) == {
        "length",
        "files",
        *(f"{key}_{n}" for key in ("dataloader", "label") for n in (0, 1)),
    }
    assert set(outcomes(judged).values()) == {"PASS"}
    assert any("no `loader`" in note for note in judged.notes)
    assert any("no `augmentation`" in note for note in judged.notes)


def test_another_probability_of_a_flip_is_named():
    found = faults({"augmentation": augmentation_of(flip=0.4, salt=2)}, draws=2000)
    assert "flip" in found
    assert set(found) <= {"flip", "pixels/left_minus_right"}
    assert "of the draws expected, " in found["flip"]
    assert "2000 draws" in found["flip"]


def test_another_range_of_crops_is_named():
    found = faults({"augmentation": augmentation_of(scale=(0.2, 1.0), salt=2)}, draws=1000)
    assert "scale" in found
    assert "from 0.08" in found["scale"]
    assert "0.2" in found["scale"]
    assert "box[2]" in found
    assert "flip" not in found


def test_parameters_that_one_side_alone_draws_fail():
    def renamed(root, seed):
        draw = augmentation_of(salt=2)(root, seed)

        def draw_renamed(number):
            image, drawn = draw(number)
            return image, {("mirror" if name == "flip" else name): value for name, value in drawn.items()}

        return draw_renamed

    found = faults({"augmentation": renamed})
    assert found["flip"] == "drawn by the reference alone"
    assert found["mirror"].startswith("drawn by the port alone")


def random_dataset(std=1.0):
    generator = np.random.default_rng(3)

    def read(image, label, file, index):
        return image + np.float32(generator.normal(0, std)), label, file

    return {"dataset": lambda root, split: Images(read=read), "augmentation": None}


def test_random_data_sets_are_compared_by_distribution():
    judged = compare(random_dataset(), GOOD | random_dataset())
    assert not reasons(judged, "FAIL", "ERROR", "SKIP")
    assert "pixels/mean" in outcomes(judged)
    assert "dataloader_0" not in outcomes(judged)
    assert any("as distributions only" in note for note in judged.notes)
    assert "pixels/mean" in faults(random_dataset(1.5), GOOD | random_dataset())


def test_a_data_set_that_is_random_on_one_side_alone_fails():
    found = faults({**random_dataset(), "loader": None}, GOOD | {"augmentation": None, "loader": None})
    assert found["values"] == (
        "of one and the same sample: expected the same values at every read, actual other values at every read"
    )


def test_a_data_set_that_hears_of_the_epoch_is_read_in_each():
    def dataset(step):
        class Moving(Images):
            epoch = 0

            def set_epoch(self, epoch):
                self.epoch = epoch * step

            def __getitem__(self, index):
                image, label, file = super().__getitem__(index)
                return image + self.epoch, label, file

        return {"dataset": lambda root, split: Moving(), "augmentation": None}

    judged = compare(dataset(1), GOOD | dataset(1))
    assert not reasons(judged, "FAIL", "ERROR", "SKIP")
    assert {"dataloader_1", "epoch_1/dataloader_1", "epoch_1/label_0"} <= set(outcomes(judged))
    assert set(faults(dataset(0), GOOD | dataset(1))) == {"epoch_1/dataloader_0", "epoch_1/dataloader_1"}


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda number: 3, "augmentation: a draw is wrong"),
        (lambda number: (None, {"box": [0] * (1 + number % 2)}), "equally many in every draw"),
    ],
)
def test_an_augmentation_that_breaks_its_contract_is_refused(draw, words):
    with pytest.raises(UsageError, match=words):
        compare({"augmentation": lambda root, seed: draw})


def test_a_loader_that_breaks_its_contract_is_refused():
    with pytest.raises(UsageError, match=r"sides\.torch\.loader: a batch is wrong"):
        compare({"loader": lambda *_: [np.ones(3)]})
