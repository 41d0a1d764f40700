"""Statistics and weights with a constraint stay within the values of the ranks."""

import keras
import numpy as np
import pytest
import ranks
import tensorflow as tf

from hvd_p3.shadow import BlockwiseModelUpdateFiltering, ElasticAveraging, ModelAveraging
from hvd_p3.shadow.foreground import ForegroundSession
from hvd_p3.shadow.weights import ReplicatedWeights


def _variables(value=1.0):
    values = keras.initializers.Constant(value)
    return [
        keras.Variable(values, shape=[2], trainable=False),
        keras.Variable(values, shape=[1]),
        tf.Variable([value], constraint=tf.keras.constraints.NonNeg()),
    ]


def test_a_blend_that_comes_late_leaves_no_bound():
    """Training has changed the variables since they were read."""
    variables = _variables()
    weights = ReplicatedWeights(variables)
    np.testing.assert_array_equal(weights.bounded, [True, True, False, True])
    before, ticket = weights.read()
    for variable in variables:
        variable.assign(tf.fill(variable.shape, 0.125))
    assert weights.blend(before, np.full(4, 0.25, "float32"), 0.5, ticket)
    # Statistics: half of the way from what is there. Others: half of the way that was found.
    np.testing.assert_array_equal(
        weights.read()[0], [0.1875, 0.1875, 0.125 + 0.5 * (0.25 - 1), 0.1875]
    )


def test_a_blend_from_before_a_pause_is_dropped():
    variables = _variables()
    weights = ReplicatedWeights(variables)
    before, ticket = weights.read()
    with weights.paused():
        pass
    assert not weights.blend(before, np.zeros(4, "float32"), 1.0, ticket)
    np.testing.assert_array_equal(weights.read()[0], before)


@pytest.mark.parametrize(
    "make_algorithm",
    [
        ModelAveraging,
        lambda: BlockwiseModelUpdateFiltering(1.0, 1.5, 0.9, nesterov=True),
        lambda: BlockwiseModelUpdateFiltering(1.0, 1.0, 0.9),
        ElasticAveraging,
    ],
)
def test_no_algorithm_leaves_the_bounds(make_algorithm):
    """A variance that falls to nearly nothing on all ranks overshoots with momentum."""

    def program(channel):
        variables = _variables(4.0)
        session = ForegroundSession(make_algorithm(), variables, channel, 1, 20.0, every=1)
        session.start()
        least = []
        for step in range(8):
            for variable in variables:
                variable.assign(variable * (0.25 + 0.1 * channel.rank))
            session.step()
            least += [variables[0].numpy().min(), variables[2].numpy().min()]
            assert max(least) < 4, step
        session.end()
        assert session.error is None
        return min(least + [variables[0].numpy().min(), variables[2].numpy().min()])

    assert min(ranks.run(2, program)) >= 0
