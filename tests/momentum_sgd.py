"""SGD with momentum and momentum correction, written down in NumPy for a linear model."""

import keras
import numpy as np

FEATURES = 3
STEPS_PER_EPOCH = 4
BATCH_SIZE = 2


def data(seed, count=STEPS_PER_EPOCH * BATCH_SIZE):
    """Inputs (count, FEATURES) and targets (count, 1), float32."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, FEATURES)).astype("float32")
    return x, generator.normal(size=(count, 1)).astype("float32")


def model(optimizer, **compile_arguments):
    """A linear model without bias, with weights of 0.5, compiled for the mean squared error."""
    layer = keras.layers.Dense(
        1, use_bias=False, kernel_initializer=keras.initializers.Constant(0.5)
    )
    linear = keras.Sequential([keras.Input((FEATURES,)), layer])
    linear.compile(optimizer, loss="mse", **compile_arguments)
    return linear


class MomentumSGD:
    """The weights that training must leave.

    `velocity = momentum * velocity - rate * gradient`, where in each step momentum is multiplied by
    the step's learning rate / that of the step before.

    Args:
        shards: List, for each rank, of (x, y).
        momentum: float.
        rate: float. Learning rate before the first step.
        corrects: bool. Whether momentum is corrected.
        nesterov: bool.
    """

    def __init__(self, shards, momentum, rate, corrects=True, nesterov=False):
        self.shards = [(x.astype("float64"), y.astype("float64")) for x, y in shards]
        self.momentum = momentum
        self.rate = rate
        self.corrects = corrects
        self.nesterov = nesterov
        self.weights = np.full((FEATURES, 1), 0.5)
        self.velocity = np.zeros((FEATURES, 1))

    def gradient(self, step):
        """The mean over ranks of the gradients of their batches."""
        rows = slice(step * BATCH_SIZE, (step + 1) * BATCH_SIZE)
        gradients = [
            2 / BATCH_SIZE * x[rows].T @ (x[rows] @ self.weights - y[rows]) for x, y in self.shards
        ]
        return sum(gradients) / len(gradients)

    def train(self, epochs, rate_of, first_epoch=0):
        """Trains with the learning rate `rate_of(epoch)`, of a float, in each step."""
        for epoch in range(first_epoch, first_epoch + epochs):
            for step in range(STEPS_PER_EPOCH):
                self.step(self.gradient(step), rate_of(epoch + step / STEPS_PER_EPOCH))
        return self.weights

    def step(self, gradient, rate):
        correction = rate / self.rate if self.corrects else 1.0
        self.rate = rate
        self.velocity = self.momentum * correction * self.velocity - rate * gradient
        if self.nesterov:
            self.weights = self.weights + self.momentum * self.velocity - rate * gradient
        else:
            self.weights = self.weights + self.velocity
