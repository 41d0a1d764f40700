"""The exactness table: kinds of models, each with momentum SGD or Adam."""

import keras
import table
import tensorflow as tf
from keras import layers
from table import run_row as run_check  # noqa: F401

PREFIX = "row_"


def _momentum():
    return keras.optimizers.SGD(0.05, momentum=0.9)


def _adam():
    return keras.optimizers.Adam(0.01)


def row_sequential(run):
    model = keras.Sequential(
        [keras.Input((8,)), layers.Dense(8, activation="tanh"), layers.Dense(4)]
    )
    run.compile(model, _momentum())
    run.train(model, table.features(), table.targets())


def row_branches_inputs_and_outputs(run):
    left, right = keras.Input((8,)), keras.Input((8,))
    first = layers.Dense(6, activation="tanh")(left)
    second = layers.Dense(6, activation="tanh")(layers.Concatenate()([left, right]))
    both = layers.Add()([first, second])
    model = keras.Model([left, right], [layers.Dense(4)(both), layers.Dense(4)(second)])
    run.compile(model, _adam(), loss=["mse", "mae"])
    x, y = table.features(), table.targets()
    run.train(model, [x, x[::-1].copy()], [y, y[::-1].copy()])


def row_shared_layer(run):
    shared = layers.Dense(8, activation="tanh")
    inputs = keras.Input((8,))
    once = shared(inputs)
    twice = shared(layers.Dense(8)(once))
    model = keras.Model(inputs, layers.Dense(4)(layers.Concatenate()([twice, shared(twice)])))
    run.compile(model, _momentum())
    run.train(model, table.features(), table.targets())


class Tied(keras.Model):
    """Scores tokens with the matrix that embeds them."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(20, 8)
        self.hidden = layers.Dense(8, activation="tanh")

    def call(self, inputs):
        hidden = self.hidden(tf.reduce_mean(self.embedding(inputs), axis=1))
        return tf.matmul(hidden, self.embedding.embeddings, transpose_b=True)


def _token_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def row_tied_weights(run):
    model = Tied()
    model.build((None, 6))
    run.compile(model, _adam(), loss=_token_loss())
    run.train(model, table.tokens(), table.labels(classes=20))


def row_nested_models(run):
    inner = keras.Sequential(
        [keras.Input((8,)), layers.Dense(6, activation="relu"), layers.Dense(6)]
    )
    inputs = keras.Input((8,))
    middle = keras.Model(inputs, layers.Dense(8)(inner(inputs)))
    outer = keras.Sequential([keras.Input((8,)), middle, layers.ReLU(), middle, layers.Dense(4)])
    run.compile(outer, _momentum())
    run.train(outer, table.features(), table.targets())


class ControlFlow(keras.Model):
    """Uses layers in branches and loops that depend on the data."""

    def __init__(self):
        super().__init__()
        self.first = layers.Dense(8, activation="tanh")
        self.repeated = layers.Dense(8, activation="tanh")
        self.rare = layers.Dense(8)
        self.last = layers.Dense(4)

    def call(self, inputs):
        times = tf.cast(tf.reduce_sum(tf.abs(inputs)), tf.int32) % 3 + 1
        _, x = tf.while_loop(
            lambda step, x: step < times,
            lambda step, x: (step + 1, self.repeated(x)),
            (0, self.first(inputs)),
        )
        x = tf.cond(tf.reduce_sum(inputs) > 0.0, lambda: x + self.rare(x), lambda: x)
        return self.last(self.first(x))


def row_subclassed_with_control_flow(run):
    model = ControlFlow()
    model.build((None, 8))
    run.compile(model, _momentum())
    run.train(model, table.features(), table.targets())


class OwnStep(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(8, activation="tanh")
        self.head = layers.Dense(4)

    def call(self, inputs):
        return self.head(self.dense(inputs))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            again = self(x + self(x) @ tf.ones([4, 8]), training=True)
            loss = tf.reduce_mean(tf.square(again - y))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss, "after": tf.reduce_sum(self.head.kernel)}


def row_own_train_step(run):
    model = OwnStep()
    model.build((None, 8))
    run.compile(model, _adam())
    run.train(model, table.features(), table.targets())


class Gan(keras.Model):
    """Two optimizers, each for its own variables, in one step."""

    def __init__(self, run):
        super().__init__()
        self.generator = keras.Sequential([keras.Input((8,)), layers.Dense(8), layers.Dense(4)])
        self.critic = keras.Sequential([keras.Input((4,)), layers.Dense(8), layers.Dense(1)])
        self.critic_optimizer = run.distribute(_adam())

    def call(self, inputs):
        return self.critic(self.generator(inputs))

    def _update(self, optimizer, model, loss_function):
        with tf.GradientTape() as tape:
            loss = loss_function()
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    def train_step(self, data):
        noise, real = data

        def critic_loss():
            return tf.reduce_mean(self.critic(self.generator(noise)) - tf.tanh(self.critic(real)))

        def generator_loss():
            return -tf.reduce_mean(self.critic(self.generator(noise)))

        return {
            "critic": self._update(self.critic_optimizer, self.critic, critic_loss),
            "generator": self._update(self.optimizer, self.generator, generator_loss),
        }


def row_gan_with_two_optimizers(run):
    model = Gan(run)
    run.compile(model, _momentum())
    model.build((None, 8))
    model.optimizer.build(model.generator.trainable_variables)
    model.critic_optimizer.build(model.critic.trainable_variables)
    if run.overlapped:
        assert model.critic_optimizer.turn_overlap_on() is None
    run.train(model, table.features(), table.targets())


def _recurrent(run, *recurrent):
    model = keras.Sequential([keras.Input((6,), dtype="int32"), layers.Embedding(20, 6)])
    for layer in recurrent:
        model.add(layer)
    model.add(layers.Dense(4))
    run.compile(model, _adam())
    run.train(model, table.tokens(), table.targets())


def row_lstm(run):
    _recurrent(run, layers.LSTM(5, return_sequences=True), layers.LSTM(5))


def row_lstm_unrolled(run):
    _recurrent(run, layers.LSTM(5, unroll=True))


def row_gru_bidirectional(run):
    _recurrent(run, layers.Bidirectional(layers.GRU(5)))


def row_attention_and_layer_normalization(run):
    inputs = keras.Input((6,), dtype="int32")
    embedded = layers.Embedding(20, 8)(inputs)
    attended = layers.MultiHeadAttention(2, 4)(embedded, embedded)
    x = layers.LayerNormalization()(layers.Add()([embedded, attended]))
    x = layers.Dropout(0.1)(layers.Dense(8, activation="gelu")(x))
    model = keras.Model(inputs, layers.Dense(4)(layers.GlobalAveragePooling1D()(x)))
    run.compile(model, _momentum())  # the key's bias has a gradient of rounding noise alone
    run.train(model, table.tokens(), table.targets())


def row_batch_normalization(run):
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4),
        ]
    )
    run.compile(model, _momentum())
    run.train(model, table.images(), table.targets())


def row_spectral_normalization(run):
    """Writes its weights in the forward pass."""
    normalized = layers.SpectralNormalization(layers.Dense(8, activation="tanh"))
    model = keras.Sequential([keras.Input((8,)), normalized, layers.Dense(4)])
    run.compile(model, _momentum())
    run.train(model, table.features(), table.targets())


def row_frozen_then_unfrozen(run):
    model = keras.Sequential([keras.Input((8,)), layers.Dense(8), layers.Dense(8), layers.Dense(4)])
    x, y = table.features(), table.targets()
    for frozen in (True, False):
        model.layers[1].trainable = not frozen
        run.compile(model, _momentum())
        run.train(model, x, y)


class Routed(keras.Model):
    """Two heads, of which each step uses one."""

    def __init__(self):
        super().__init__()
        self.body = layers.Dense(8)
        self.heads = [layers.Dense(4), layers.Dense(4)]
        self.only_first = False

    def call(self, inputs):
        x = self.body(inputs)
        if self.only_first:
            return self.heads[0](x)
        first = tf.reduce_sum(inputs) > 0.0
        return tf.cond(first, lambda: self.heads[0](x), lambda: self.heads[1](x))


def row_layers_without_gradient_in_some_steps(run):
    model = Routed()
    model.build((None, 8))
    x, y = table.features(), table.targets()
    for only_first in (False, True):
        model.only_first = only_first
        run.compile(model, _adam())
        run.train(model, x, y)


def row_regularizers_and_constraints(run):
    dense = layers.Dense(
        8,
        kernel_regularizer="l1l2",
        bias_regularizer="l2",
        activity_regularizer="l2",
        kernel_constraint=keras.constraints.MaxNorm(0.5),
        bias_constraint="non_neg",
    )
    model = keras.Sequential(
        [keras.Input((8,)), dense, layers.Dense(4, kernel_constraint="unit_norm")]
    )
    run.compile(model, _adam())
    run.train(model, table.features(), table.targets())


class Proportional(keras.constraints.Constraint):
    """Scales a weight to the norm of another one."""

    def __init__(self, other):
        self._other = other

    def __call__(self, weight):
        return weight * tf.norm(self._other().value) / (1.0 + tf.norm(weight))


def row_constraint_of_the_user(run):
    first, last = layers.Dense(8), layers.Dense(4)
    model = keras.Sequential([keras.Input((8,)), first, last])
    first.kernel.constraint = Proportional(lambda: last.kernel)
    run.compile(model, _momentum())
    run.train(model, table.features(), table.targets())


def row_built_at_the_first_batch(run):
    model = keras.Sequential([layers.Dense(8, activation="tanh"), layers.Dense(4)])
    run.compile(model, _momentum())
    run.train(model, table.features(), table.targets())


def row_weights_read_in_the_loss(run):
    model = keras.Sequential([keras.Input((8,)), layers.Dense(8), layers.Dense(4)])
    raw = model.layers[0].kernel.value

    def loss(y, predicted):
        penalty = tf.reduce_sum(tf.square(model.layers[1].kernel)) + tf.reduce_sum(tf.abs(raw))
        return tf.reduce_mean(tf.square(y - predicted)) + 0.01 * penalty

    run.compile(model, _momentum(), loss=loss)
    run.train(model, table.features(), table.targets())


class SumOf(keras.metrics.Metric):
    def __init__(self, read):
        super().__init__()
        self._read = read
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, y, predicted, sample_weight=None):
        self.total.assign_add(tf.reduce_sum(self._read()))

    def result(self):
        return self.total.value


def row_weights_read_by_metric_and_callback(run):
    model = keras.Sequential([keras.Input((8,)), layers.Dense(8), layers.Dense(4)])
    run.compile(model, _momentum(), metrics=[SumOf(lambda: model.layers[0].kernel.value)])
    seen = []

    class Read(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch != 2:  # where run.train looks for pending updates
                seen.append(model.layers[1].kernel.numpy().sum())

    fit = run.fit
    run.fit = lambda *data, callbacks=(): fit(*data, callbacks=[*callbacks, Read()])
    run.train(model, table.features(), table.targets())
    run.record("read", seen)


class Compiled(layers.Dense):
    @tf.function
    def call(self, inputs):
        return super().call(inputs)


def row_layer_function_traced_before_training(run):
    model = keras.Sequential([keras.Input((8,)), Compiled(8), Compiled(4)])
    x, y = table.features(), table.targets()
    model.predict(x, verbose=0)
    run.compile(model, _momentum())
    run.train(model, x, y)


class RawVariable(layers.Layer):
    def build(self, shape):
        self.raw = self.add_weight(shape=(shape[-1],), initializer="ones").value

    def call(self, inputs):
        return inputs * self.raw


def row_layer_that_holds_a_raw_variable(run):
    model = keras.Sequential([keras.Input((8,)), RawVariable(), layers.Dense(4), RawVariable()])
    run.compile(model, _adam())
    run.train(model, table.features(), table.targets())


def row_models_that_share_layers(run):
    inputs = keras.Input((8,))
    hidden = layers.Dense(8, activation="tanh")(inputs)
    first = keras.Model(inputs, layers.Dense(4)(hidden))
    second = keras.Model(inputs, layers.Dense(4)(hidden))
    encoder = keras.Model(inputs, hidden)
    x, y = table.features(), table.targets()
    run.compile(first, _adam())
    run.compile(second, _momentum())
    seen = [encoder.predict(x, verbose=0)]
    for model in (first, second, first):
        run.train(model, x, y)
        seen.append(encoder.predict(x, verbose=0))
    for _ in range(3):
        first.train_on_batch(x[:4], y[:4])
        seen.append(encoder.predict_on_batch(x[:4]))
        second.train_on_batch(x[:4], y[:4])
        seen.append(encoder(x[:4]))
    run.record("shared", *seen)
