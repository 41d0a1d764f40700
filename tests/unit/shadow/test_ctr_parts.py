"""What the example of click-through rates is made of: data, metric and model."""

import dataclasses
import json
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

from ctr import results
from ctr.click_stream import HELD_OUT, TRAINING, ClickStream
from ctr.dlrm import PairwiseDotProducts, build_dlrm
from ctr.methods import Result
from ctr.normalized_entropy import NormalizedEntropy

_SMALL = ClickStream(rows=(50, 20, 10), dense_features=3, strength=1.0, seed=4)


def test_batches_are_reproducible_and_different():
    first = _SMALL.batch(TRAINING, 3, 100)
    again = dataclasses.replace(_SMALL).batch(TRAINING, 3, 100)
    assert all(np.array_equal(*pair) for pair in zip(first, again, strict=True))
    for other in (
        _SMALL.batch(TRAINING, 4, 100),
        _SMALL.batch(HELD_OUT, 3, 100),
        dataclasses.replace(_SMALL, seed=5).batch(TRAINING, 3, 100),
    ):
        assert not np.any(first[0] == other[0])


def test_shapes_and_ranges():
    dense, rows, clicks = _SMALL.batch(TRAINING, 0, 500)
    assert (dense.shape, dense.dtype) == ((500, 3), np.float32)
    assert (rows.shape, rows.dtype) == ((500, 3), np.int64)
    assert (clicks.shape, clicks.dtype) == ((500, 1), np.float32)
    assert _SMALL.total_rows == 80
    for feature, (first, count) in enumerate(zip((0, 50, 70), (50, 20, 10), strict=True)):
        assert rows[:, feature].min() >= first
        assert rows[:, feature].max() < first + count
    assert set(np.unique(clicks)) == {0.0, 1.0}


def test_ids_follow_zipfs_law():
    _, rows, _ = _SMALL.batch(TRAINING, 0, 100_000)
    counts = np.bincount(rows[:, 0], minlength=50)[:50]
    weights = np.arange(1, 51) ** -_SMALL.exponent
    expected = 100_000 * weights / weights.sum()
    assert np.sum((counts - expected) ** 2 / expected) < 100  # chi-squared, 49 degrees of freedom


def test_clicks_have_the_planted_probabilities():
    dense, rows, clicks = _SMALL.batch(TRAINING, 0, 100_000)
    probabilities = _SMALL.probabilities(dense, rows)
    order = np.argsort(probabilities)
    for part in np.array_split(order, 20):
        expected = probabilities[part].mean()
        deviation = np.sqrt(expected * (1 - expected) / len(part))
        assert abs(clicks[part].mean() - expected) < 4.5 * deviation


def test_logits_are_those_of_a_factorization_machine():
    dense, rows, _ = _SMALL.batch(TRAINING, 0, 5)
    weights, biases, vectors = _SMALL._truth
    for example in range(5):
        logit = _SMALL.bias + dense[example] @ weights
        for position, row in enumerate(rows[example]):
            logit += biases[row]
            for other in rows[example][:position]:
                logit += _SMALL.interaction * vectors[row] @ vectors[other]
        found = _SMALL.probabilities(dense, rows)[example]
        assert found == pytest.approx(1 / (1 + np.exp(-logit)))


def test_normalized_entropy_by_its_definition():
    clicks = np.array([1, 0, 0, 1, 0])
    logits = np.array([2.0, -1.0, 0.5, -0.5, -3.0])
    metric = NormalizedEntropy()
    metric.add(clicks[:2], logits[:2])
    rest = NormalizedEntropy()
    rest.add(clicks[2:, np.newaxis], logits[2:, np.newaxis])
    metric.add_totals(rest.totals)
    probabilities = 1 / (1 + np.exp(-logits))
    log_loss = -np.mean(np.log(np.where(clicks == 1, probabilities, 1 - probabilities)))
    entropy = -(0.4 * np.log(0.4) + 0.6 * np.log(0.6))
    assert metric.result() == pytest.approx(log_loss / entropy)


def test_normalized_entropy_of_known_predictions():
    clicks = np.random.default_rng(0).random(1000) < 0.25
    rate = clicks.mean()
    metric = NormalizedEntropy()
    metric.add(clicks, np.full(1000, np.log(rate / (1 - rate))))
    assert metric.result() == pytest.approx(1.0)
    certain = NormalizedEntropy()
    certain.add(clicks, np.where(clicks, 1000.0, -1000.0))
    assert certain.result() == 0.0
    with pytest.raises(ValueError, match="with and some without a click"):
        NormalizedEntropy().result()


def test_pairwise_dot_products():
    vectors = np.random.default_rng(0).normal(size=(2, 4, 3)).astype("float32")
    found = PairwiseDotProducts()(vectors)
    expected = [
        [vectors[b, i] @ vectors[b, j] for i in range(4) for j in range(i)] for b in range(2)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_model_learns_what_is_planted():
    stream = ClickStream(rows=(30, 20), dense_features=3, strength=2.0, seed=1)
    dense, rows, clicks = stream.batch(TRAINING, 0, 20_000)
    model = build_dlrm(3, 2, keras.layers.Embedding(stream.total_rows, 4), (8,), (16,))
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss=loss)
    model.fit([dense, rows], clicks, batch_size=256, epochs=3, verbose=0)
    held_dense, held_rows, held_clicks = stream.batch(HELD_OUT, 0, 10_000)
    metric, best = NormalizedEntropy(), NormalizedEntropy()
    metric.add(held_clicks, model.predict([held_dense, held_rows], verbose=0))
    probabilities = stream.probabilities(held_dense, held_rows)
    best.add(held_clicks, np.log(probabilities) - np.log1p(-probabilities))
    assert best.result() < metric.result() < best.result() + 0.2 * (1 - best.result())


def test_initial_weights_depend_on_the_seed_only():
    made = [
        build_dlrm(3, 2, keras.layers.Embedding(4, 4, embeddings_initializer="ones"), seed=seed)
        for seed in (1, 1, 2)
    ]
    weights = [model.get_weights() for model in made]
    assert all(np.array_equal(*pair) for pair in zip(weights[0], weights[1], strict=True))
    assert not np.array_equal(weights[0][0], weights[2][0])


def test_methods_are_compared_seed_by_seed(tmp_path):
    # What can be learned differs more between seeds than between methods.
    found = [
        Result("s-ma", 0, 100.0, 0.505, 60.0, 2.0),
        Result("fr-ma", 0, 50.0, 0.510, 30.0, 5.0),
        Result("p3", 0, 80.0, 0.500),
        Result("s-ma", 1, 200.0, 0.6018, 80.0, 4.0),
        Result("fr-ma", 1, 70.0, 0.5970, 30.0, 5.0),
        Result("p3", 1, 90.0, 0.600),
    ]
    background, foreground, p3 = summaries = results.summarize(found)
    assert [each.name for each in summaries] == ["s-ma", "fr-ma", "p3"]
    assert background.examples_per_s == 150.0
    assert background.normalized_entropy == pytest.approx(0.5534)
    assert background.to_p3 == pytest.approx(0.0065)  # 1.0 % and 0.3 %
    assert background.to_p3_deviation == pytest.approx(0.007 / np.sqrt(2))
    assert background.to_foreground == pytest.approx((505 / 510 + 6018 / 5970) / 2 - 1)
    assert (background.synchronizations_per_min, background.average_sync_gap) == (70.0, 3.0)
    assert foreground.to_p3 == pytest.approx(0.0075)
    assert foreground.to_foreground is None
    assert p3.to_p3 is p3.to_p3_deviation is p3.average_sync_gap is None
    table = results.as_table(summaries, [0.4, 0.5])
    assert "+0.65% ± 0.49%" in table.splitlines()[1]
    assert "0.4500" in table.splitlines()[4]
    results.write_json(tmp_path / "results.json", found, [0.4, 0.5], 2, {})
    written = json.loads((tmp_path / "results.json").read_text())
    assert len(written["runs"]) == 6
    assert written["methods"][0]["to_p3"] == background.to_p3


def test_one_seed_has_no_deviation():
    (only,) = summaries = results.summarize([Result("s-ma", 0, 100.0, 0.505, 60.0, 2.0)])
    assert only.to_p3 is only.to_foreground is only.normalized_entropy_deviation is None
    assert "±" not in results.as_table(summaries, [0.4])
