"""Loss scaling: `keras.optimizers.LossScaleOptimizer` around another optimizer."""

import keras


def innermost(optimizer):
    """The optimizer that updates variables: the one inside of a `LossScaleOptimizer`."""
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer
