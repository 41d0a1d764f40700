"""Runs the rows of the exactness table: the same program in immediate and in overlapped mode.

A row is a function `row_...(run)` that trains a model and calls `run.record()` at several numbers
of steps. Its programs in the two modes start from the same weights and see the same data; what they
record must agree: in every bit when TensorFlow's arithmetic graph rewriting is off, and within
rounding with default options, since the graphs of the two modes may then be rewritten differently.
"""

import contextlib
import os
import tempfile
import warnings

import keras
import numpy as np
import tensorflow as tf

import hvd_p3 as hvd

BATCH = 4

# The rows that train in immediate mode, and the notice that says why. All others are overlapped.
IMMEDIATE = {
    "row_adasum": "op=hvd_p3.Adasum goes through Horovod's own operations",
    "row_backward_passes_with_loss_scaling": "LossScaleOptimizer looks at all gradients before",
    "row_clip_by_global_norm": "global_clipnorm needs all gradients before any update",
    "row_gradient_accumulation": "gradient_accumulation_steps updates all variables at once",
    "row_loss_scaling_with_overflow": "LossScaleOptimizer looks at all gradients before any update",
    "row_mixed_float16": "LossScaleOptimizer looks at all gradients before any update",
    "row_constraint_of_the_user": "has the constraint Proportional, which is not Keras's own",
    "row_hyper_parameter_in_a_variable": "weight_decay is a ResourceVariable",
    "row_optimizer_of_the_user": "is not known to update each variable by itself",
    "row_run_eagerly": "the model runs eagerly",
    "row_hyper_parameter_changed_and_traced_anew": "momentum was changed from 0.9 to 0.5",
}

# Rows whose update constant folding, too, rewrites differently in the graphs of the two modes. It
# is off for them in the comparison of bits.
UNFOLDED = {"row_muon", "row_rmsprop", "row_schedule_free_adamw"}

# The rows that are compared with default graph options too; HVD_P3_TEST_REWRITING=all compares all.
REWRITTEN = {
    "row_adam",
    "row_adamw_with_excluded_variables",
    "row_attention_and_layer_normalization",
    "row_batch_normalization",
    "row_branches_inputs_and_outputs",
    "row_clip_by_norm",
    "row_lstm_unrolled",
    "row_mixed_bfloat16",
    "row_own_loop",
    "row_shared_layer",
    "row_sparse_rows_exchanged",
    "row_tied_weights",
}

_EVERYTHING = os.environ.get("HVD_P3_TEST_REWRITING") == "all"

# With default graph options the two modes may differ by this many units in the last place of a
# variable's largest element, or of 0.01, for each step.
ULPS_PER_STEP = 16


class Run:
    """One program in one mode, and what it has recorded.

    Args:
        overlapped: bool.
        folder: str. For files of this program and rank.
    """

    def __init__(self, overlapped, folder):
        self.overlapped = overlapped
        self.folder = folder
        self.models = []
        self.optimizers = []
        self.recorded = []  # (label, list of arrays)
        self.pending_seen = False
        self._start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)  # acts at the first fit

    def callbacks(self):
        overlap = [hvd.callbacks.P3Callback(verbose=0)] if self.overlapped else []
        return [self._start, *overlap]

    def distribute(self, optimizer, **options):
        self.optimizers.append(hvd.DistributedOptimizer(optimizer, **options))
        return self.optimizers[-1]

    def compile(self, model, optimizer, loss="mse", **options):
        model.compile(self.distribute(optimizer), loss=loss, **options)
        self.watch(model)

    def watch(self, model):
        """Records the model's and its optimizer's variables from now on."""
        if model not in self.models:
            self.models.append(model)

    def fit(self, model, x, y=None, callbacks=(), **options):
        options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, **options}
        model.fit(x, y, callbacks=[*callbacks, *self.callbacks()], **options)

    def train(self, model, x, y):
        """Six steps. Records after 1, after 4 in the middle of an epoch, 6, and what was saved."""
        self.fit(model, head(x, 1), head(y, 1))
        self.record("1 step")
        path = os.path.join(self.folder, f"{len(self.recorded)}.weights.h5")

        def save():
            model.save_weights(path)  # reads first: updates are pending
            self.record("4 steps")

        self.fit(model, head(x, 5), head(y, 5), callbacks=[AtBatch(2, self, save)])
        self.record("6 steps")
        model.load_weights(path)
        self.record("loaded")

    def record(self, label, *values):
        """Keeps all variables, and other arrays."""
        arrays = [np.asarray(value) for value in values]
        for model in self.models:
            arrays += [variable.numpy() for variable in model.variables]
        for optimizer in self.used_optimizers():
            arrays += [variable.numpy() for variable in optimizer.variables]
        self.recorded.append((label, arrays))

    def used_optimizers(self):
        """Those of the models, which Keras may have wrapped, and those that have none."""
        of_models = [model.optimizer for model in self.models if hasattr(model, "optimizer")]
        inner = [getattr(each, "inner_optimizer", None) for each in of_models]
        known = {id(each) for each in (*of_models, *inner)}
        return [*of_models, *(each for each in self.optimizers if id(each) not in known)]

    def is_pending(self):
        """Whether an update is outstanding now. Settles nothing."""
        return any(
            bool(hvd.ops.is_pending(slot))
            for optimizer in self.optimizers
            for slot in optimizer._hvd_p3_state.reducer.slots or []
        )


class AtBatch(keras.callbacks.Callback):
    """Calls a function after a batch of an epoch, and notes whether updates were pending."""

    def __init__(self, batch, run, function):
        super().__init__()
        self._batch = batch
        self._run = run
        self._function = function

    def on_train_batch_end(self, batch, logs=None):
        if batch == self._batch:
            self._run.pending_seen |= self._run.is_pending()
            self._function()


def head(data, batches):
    """The first batches of an array, or of each array of a list or dict."""
    return tf.nest.map_structure(lambda array: array[: BATCH * batches], data)


def run_row(row):
    """Runs a row in both modes, without arithmetic rewriting, and with it where that is asked for;
    fails if they disagree."""
    rewritten = row.__name__ in REWRITTEN and hvd.size() == 2
    for exactly in (True, False) if rewritten or _EVERYTHING else (True,):
        off = {"arithmetic_optimization", *(["constant_folding"] * (row.__name__ in UNFOLDED))}
        with _without_graph_optimizers(off if exactly else ()):
            immediate = _run(row, overlapped=False)
            overlapped = _run(row, overlapped=True)
        compare(immediate, overlapped, exactly)


@contextlib.contextmanager
def _without_graph_optimizers(names):
    tf.config.optimizer.set_experimental_options(dict.fromkeys(names, False))
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options(dict.fromkeys(names, True))


def _run(row, overlapped):
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
    hvd.notices._said.clear()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = Run(overlapped, folder)
        row(run)
    said = [str(each.message) for each in caught if "immediate mode" in str(each.message)]
    _check_mode(row.__name__, run, said)
    return run


def _check_mode(name, run, said):
    reason = IMMEDIATE.get(name) if run.overlapped else None
    are_on = [optimizer.is_overlapped() for optimizer in run.used_optimizers()]
    if not run.overlapped:
        assert not any(are_on)
        assert not run.pending_seen
    elif reason is None:
        assert all(are_on), f"trained in immediate mode: {said}"
        assert run.pending_seen, "no update was ever pending: nothing was tested"
    else:
        assert not any(are_on)
    if hvd.rank() == 0:
        assert len(said) == (reason is not None), said
        assert reason is None or reason in said[0], said


def compare(immediate, overlapped, exactly):
    """Fails unless two runs have recorded the same."""
    labels = [label for label, _ in immediate.recorded]
    assert labels == [label for label, _ in overlapped.recorded]
    assert len(labels) > 0
    for step, (label, expected) in enumerate(immediate.recorded, start=1):
        actual = overlapped.recorded[step - 1][1]
        assert len(actual) == len(expected)
        for index, (one, other) in enumerate(zip(actual, expected, strict=True)):
            what = f"{label}, array {index}"
            assert one.dtype == other.dtype and one.shape == other.shape, what
            if one.tobytes() == other.tobytes():
                continue
            ulps = _difference_in_ulps(one, other)
            assert not exactly, f"{what}: bits differ, by up to {ulps:.1f} ulp"
            steps = int(label.split()[0]) if label[0].isdigit() else 6
            assert ulps <= ULPS_PER_STEP * steps, f"{what}: differs by {ulps:.1f} ulp"


def _difference_in_ulps(one, other):
    one, other = one.astype("float64"), other.astype("float64")
    largest = max(np.max(np.abs(other)), 0.01)
    return np.max(np.abs(one - other)) / (np.finfo("float32").eps * largest)


def features(batches=6, width=8, dtype="float32"):
    """Inputs (rows, width) of this rank, around 0."""
    return _random().normal(size=(batches * BATCH, width)).astype(dtype)


def images(batches=6):
    return _random().normal(size=(batches * BATCH, 8, 8, 1)).astype("float32")


def tokens(batches=6, length=6, vocabulary=20):
    return _random().integers(vocabulary, size=(batches * BATCH, length)).astype("int32")


def targets(batches=6, width=4, dtype="float32"):
    return np.tanh(_random(1).normal(size=(batches * BATCH, width))).astype(dtype)


def labels(batches=6, classes=5):
    return _random(1).integers(classes, size=batches * BATCH).astype("int32")


def _random(stream=0):
    return np.random.default_rng([hvd.rank(), stream])


@contextlib.contextmanager
def dtype_policy(name):
    """A context with another default dtype policy, such as "mixed_bfloat16"."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
