"""Shuts down right after the last step and reads the weights then, for test_shutdown.py."""

import time

import keras
import models
import numpy as np

import hvd_p3 as hvd


def trained(x, y, pause):
    """A model whose last step is pushed and not pulled."""
    model = models.digits_model()
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.optimizer.build(model.trainable_variables)
    assert model.optimizer.turn_overlap_on() is None
    for step in range(3):
        if step == 2:
            time.sleep(pause)
        model.train_on_batch(x, y)
    return model


def main():
    hvd.init()
    x, y = models.digits_of_this_rank(8)
    expected = trained(x, y, pause=0).get_weights()
    # Rank 0 shuts down before rank 1 has submitted anything of the last step.
    model = trained(x, y, pause=0.5 * hvd.rank())
    unfinished = hvd.statistics()["held_bytes"]
    hvd.shutdown()
    for before, after in zip(expected, model.get_weights(), strict=True):
        np.testing.assert_array_equal(after, before)
    print(f"rank read the same weights; {unfinished} bytes were unfinished", flush=True)


if __name__ == "__main__":
    main()
