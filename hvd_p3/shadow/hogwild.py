"""Several training threads in one rank, without locks: Hogwild."""

import threading

import keras
import tensorflow as tf

from hvd_p3.optimizer import is_distributed


class _Epoch:
    """One epoch of all workers.

    The callbacks are called by one worker at a time.
    """

    def __init__(self, model, step, callbacks):
        self._model = model
        self._step = step
        self._callbacks = callbacks
        self._lock = threading.Lock()
        self._batches = 0
        self._error = None

    def run(self, iterators, steps):
        """Trains until all iterators are at their end, or each worker has done `steps` steps.

        Args:
            iterators: List of iterators of batches, one for each worker.
            steps: Optional int.
        """
        threads = [
            threading.Thread(
                target=self._work, args=(iterator, steps), name=f"hvd_p3 worker {number}"
            )
            for number, iterator in enumerate(iterators)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException as error:  # Ctrl-C
            self._error = error
            for thread in threads:
                thread.join()
        if self._error is not None:
            raise self._error

    def _work(self, iterator, steps):
        done = 0
        try:
            while self._error is None and not self._model.stop_training:
                if steps is not None and done == steps:
                    return
                try:
                    batch = next(iterator)
                except StopIteration:
                    return
                self._step(batch)
                done += 1
                with self._lock:
                    self._callbacks.on_train_batch_end(self._batches)
                    self._batches += 1
        except BaseException as error:
            self._error = self._error or error


class _Turns:
    """The iterator of one worker over batches that all workers share: each goes to one of them.

    Args:
        batches: The iterator that is shared.
        lock: Held by the worker whose turn it is.
    """

    def __init__(self, batches, lock):
        self._batches = batches
        self._lock = lock

    def __iter__(self):
        return self

    def __next__(self):
        with self._lock:
            return next(self._batches)


def fit(model, data, workers=1, epochs=1, steps_per_epoch=None, callbacks=(), verbose=0):
    """Trains a compiled Keras model with several threads that share its variables without locks.

    Each worker thread takes batches from an iterator of its own and runs the model's `train_step`.
    TensorFlow runs the steps of different workers in parallel: a worker holds Python's lock (the
    GIL) only between steps. Single values do not tear. Updates of dense gradients do not get lost,
    as long as the optimizer adds to its variables (SGD and most others do); updates of the same
    rows by sparse gradients may. What is computed from several reads, such as momentum, may mix
    steps of different workers, as in Hogwild; see docs/shadow-sync.md.

    Batch callbacks are called by one worker at a time, without logs, with the number of the batch
    over all workers. There is no `on_train_batch_begin`, since several batches begin at once.

    Method: Hogwild (Recht et al., 2011), as ShadowSync (Zheng et al., 2020) uses it within a
    trainer.

    Args:
        model: `keras.Model`, compiled with an optimizer that is not distributed, and with
            `jit_compile=False`: XLA would keep the variables locked for a whole step.
        data: A `tf.data.Dataset` of batches, which runs once for all workers: whoever is ready
            takes the next one, so each batch of an epoch is trained once. Or a function of the
            worker's number (int from 0) that returns an iterable of batches for it alone. Batches
            are as in `keras.Model.fit`: inputs, or tuples of inputs, targets and weights.
        workers: int, training threads.
        epochs: int.
        steps_per_epoch: Optional int, the steps of each worker in an epoch. Without it, an epoch
            ends with the data. With it, iterators go on from epoch to epoch.
        callbacks: List of `keras.callbacks.Callback`, such as a `ShadowSync`.
        verbose: int. 1 prints a line for each epoch.

    Returns:
        A `keras.callbacks.History`.

    Raises:
        ValueError: If an argument makes no sense, or the model is not compiled as needed.

    Example:

    ```python
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    sync = hvd_p3.shadow.ShadowSync(hvd_p3.shadow.ModelAveraging())
    hvd_p3.shadow.fit(model, data_of_this_rank, workers=4, epochs=2, callbacks=[sync])
    ```
    """
    _check(model, workers, epochs, steps_per_epoch)
    history = keras.callbacks.History()
    model.stop_training = False
    every = keras.callbacks.CallbackList(
        [*callbacks, history], model=model, epochs=epochs, steps=steps_per_epoch, verbose=verbose
    )
    step = _Step(model)
    try:
        _train(model, step, every, data, workers, epochs, steps_per_epoch, verbose)
    except BaseException:
        for callback in callbacks:
            if hasattr(callback, "abort"):  # ends what other ranks would wait for
                callback.abort()
        raise
    return history


def _train(model, step, every, data, workers, epochs, steps_per_epoch, verbose):
    """Calls the callbacks, and trains in between."""
    every.on_train_begin()
    iterators = None
    for epoch in range(epochs):
        model.reset_metrics()
        every.on_epoch_begin(epoch)
        if iterators is None or steps_per_epoch is None:
            iterators = _iterators(data, workers)
        _Epoch(model, step, every).run(iterators, steps_per_epoch)
        logs = {name: float(value) for name, value in model.get_metrics_result().items()}
        every.on_epoch_end(epoch, logs)
        if verbose:
            shown = ", ".join(f"{name} {value:.4g}" for name, value in logs.items())
            print(f"epoch {epoch + 1} of {epochs}: {shown}", flush=True)
        if model.stop_training:
            break
    every.on_train_end()


class _Step:
    """The model's training step, as a TensorFlow function. Any thread may call."""

    def __init__(self, model):
        self._function = tf.function(model.train_step, reduce_retracing=True)
        self._first = threading.Lock()
        self._is_traced = False

    def __call__(self, batch):
        if not self._is_traced:
            # The first call builds the model and the optimizer.
            with self._first:
                self._function(batch)
                self._is_traced = True
                return
        self._function(batch)


def _iterators(data, workers):
    """A list of one iterator of batches for each worker."""
    if isinstance(data, tf.data.Dataset):
        # Not a shard of the dataset for each: if it shuffles, each would have another order.
        batches, lock = iter(data), threading.Lock()
        return [_Turns(batches, lock) for _ in range(workers)]
    return [iter(data(number)) for number in range(workers)]


def _check(model, workers, epochs, steps_per_epoch):
    if not getattr(model, "compiled", False):
        raise ValueError("hvd_p3.shadow.fit needs a compiled model; call model.compile first.")
    if is_distributed(model.optimizer):
        raise ValueError(
            "hvd_p3.shadow.fit needs an optimizer that is not wrapped in "
            "hvd_p3.DistributedOptimizer: its workers would not submit gradients in step."
        )
    if model.jit_compile:
        raise ValueError(
            "hvd_p3.shadow.fit needs a model compiled with jit_compile=False: XLA locks the "
            f"variables for a whole step. Received: jit_compile={model.jit_compile}"
        )
    if model.run_eagerly:
        raise ValueError(
            "hvd_p3.shadow.fit needs a model compiled with run_eagerly=False: eager steps of "
            "several threads would wait for each other in Python."
        )
    for name, value in (("workers", workers), ("epochs", epochs)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be an int of at least 1. Received: {name}={value!r}")
    if steps_per_epoch is not None and not steps_per_epoch >= 1:
        raise ValueError(
            f"steps_per_epoch must be at least 1. Received: steps_per_epoch={steps_per_epoch!r}"
        )
