"""Autotuning: the search on a made-up engine and clock, and its place in training."""

import math
import sys

import keras
import numpy as np
import pytest

import hvd_p3
from hvd_p3 import _engine, autotune, configuration, process

_START = (256 * 1024, 1024 * 1024)
_FASTEST = (64 * 1024, 512 * 1024)


def _bowl(slice_bytes, credit_bytes):
    """Seconds a step, least at `_FASTEST`."""
    slices, credits = math.log2(slice_bytes / _FASTEST[0]), math.log2(credit_bytes / _FASTEST[1])
    return 0.4 + 0.02 * slices**2 + 0.01 * credits**2


class _Engine:
    """Adopts a proposal `delay` steps after it; its clock moves by what a step costs."""

    def __init__(self, seconds_a_step, start=_START, sums_independent_of_slices=True, delay=1):
        self.settings = start
        self.sums_independent_of_slices = sums_independent_of_slices
        self.proposals = []
        self.now = 1000.0
        self._seconds_a_step = seconds_a_step
        self.delay = delay
        self._steps_to_adoption = 0

    def propose_settings(self, slice_bytes, credit_bytes):
        self.proposals.append((slice_bytes, credit_bytes))
        self._steps_to_adoption = self.delay

    def current_settings(self):
        return {
            "slice_bytes": self.settings[0],
            "credit_bytes": self.settings[1],
            "sums_independent_of_slices": self.sums_independent_of_slices,
        }

    def clock(self):
        return self.now

    def run_steps(self, count=1):
        for _ in range(count):
            if self._steps_to_adoption:
                self._steps_to_adoption -= 1
                if self._steps_to_adoption == 0:
                    self.settings = self.proposals[-1]
            self.now += self._seconds_a_step(*self.settings)


def _train(tuner, engine, batches, steps_per_execution=1):
    for batch in range(batches):
        if tuner.is_finished():
            break
        engine.run_steps(steps_per_execution)
        tuner.batch_ended((batch + 1) * steps_per_execution - 1)


def _tuned(engine, **arguments):
    tuner = autotune.Autotuner(engine, engine.clock)
    _train(tuner, engine, 1000, **arguments)
    assert tuner.is_finished()
    engine.run_steps(engine.delay)
    assert engine.settings == tuner.best()
    return tuner


# 120 KiB is no slice size of the grid, and a credit of 768 KiB no multiple of it.
@pytest.mark.parametrize("start", [_START, (120 * 1024, 768 * 1024), (7, 3)])
def test_finds_settings_near_the_fastest(start, capsys):
    engine = _Engine(_bowl, start)
    tuner = _tuned(engine)
    assert _bowl(*tuner.best()) < 1.03 * _bowl(*_FASTEST)
    # 19 trials, the turns of the best and of the start, and the result.
    assert len(engine.proposals) == autotune.TRIALS - 1 + 2 * autotune.TURNS + 1
    slice_bytes, credit_bytes = tuner.best()
    assert capsys.readouterr().out == (
        f"P3 autotune: slice_bytes={slice_bytes} credit_bytes={credit_bytes}, "
        f"{_bowl(slice_bytes, credit_bytes):.3g} s a step instead of {_bowl(*start):.3g} s with "
        "the settings of the start (20 trials)\n"
    )


def test_proposes_only_points_of_the_grid():
    engine = _Engine(_bowl)
    _tuned(engine)
    for slice_bytes, credit_bytes in set(engine.proposals) - {_START}:
        assert slice_bytes % 1024 == 0
        assert 16 * 1024 <= slice_bytes <= 4 * 1024 * 1024
        assert credit_bytes / slice_bytes in autotune.CREDIT_SLICES


def test_searches_the_same_way_each_time():
    first, second = _Engine(_bowl), _Engine(_bowl)
    _tuned(first)
    _tuned(second)
    assert first.proposals == second.proposals


def test_says_nothing_but_the_result(capfd):
    _tuned(_Engine(_bowl))
    output = capfd.readouterr()
    assert output.out.count("\n") == 1
    assert output.err == ""


@pytest.mark.parametrize("start", [_START, (120 * 1024, 1024 * 1024)])
def test_keeps_the_slice_size_where_sums_depend_on_it(start):
    engine = _Engine(_bowl, start, sums_independent_of_slices=False)
    tuner = _tuned(engine)
    assert {slice_bytes for slice_bytes, _ in engine.proposals} == {start[0]}
    assert len({credit_bytes for _, credit_bytes in engine.proposals}) > 3
    assert abs(math.log2(tuner.best()[1] / _FASTEST[1])) <= 0.5


@pytest.mark.parametrize("start", [_START, (120 * 1024, 1024 * 1024)])
def test_settings_of_the_start_come_first_and_are_kept_when_fastest(start, capsys):
    engine = _Engine(lambda *settings: 0.25 if settings == start else 0.5, start)
    tuner = autotune.Autotuner(engine, engine.clock)
    _train(tuner, engine, 1 + autotune.WARM_UP_STEPS + autotune.STEPS_PER_TRIAL - 1)
    assert engine.proposals == []
    _train(tuner, engine, 1000)
    assert tuner.best() == start
    assert engine.proposals[-1] == start
    assert capsys.readouterr().out == (
        f"P3 autotune: slice_bytes={start[0]} credit_bytes={start[1]}, 0.25 s a step, "
        "the settings of the start (20 trials)\n"
    )


@pytest.mark.parametrize("delay", [1, 4])
def test_measures_only_steps_under_the_trial_s_settings(delay):
    engine = _Engine(_bowl, delay=delay)
    tuner = _tuned(engine)
    for settings, seconds in tuner._seconds.items():
        assert seconds == pytest.approx([_bowl(*settings)] * len(seconds))


def test_the_step_after_a_change_does_not_count():
    engine = _Engine(lambda *settings: 1.0)
    tuner = autotune.Autotuner(engine, engine.clock)
    _train(tuner, engine, 1 + autotune.WARM_UP_STEPS + autotune.STEPS_PER_TRIAL)
    assert len(engine.proposals) == 1
    trial_begin = 100
    for step, extra in enumerate([50.0, 50.0, 0.0, 0.0, 0.0, 0.0, 0.0]):
        engine.run_steps()
        engine.now += extra
        if step == 0:
            tuner.skip_interval()
        tuner.batch_ended(trial_begin + step)
    assert tuner._seconds[engine.proposals[0]] == [1.0] * autotune.STEPS_PER_TRIAL
    assert len(engine.proposals) == 2


def test_one_slow_step_of_a_trial_does_not_matter():
    engine = _Engine(_bowl)
    tuner = autotune.Autotuner(engine, engine.clock)
    for batch in range(1000):
        engine.run_steps()
        engine.now += 10.0 if batch % 7 == 0 else 0.0
        tuner.batch_ended(batch)
        if tuner.is_finished():
            break
    assert _bowl(*tuner.best()) < 1.03 * _bowl(*_FASTEST)


def test_settings_that_were_fast_by_chance_are_not_kept(capsys):
    """Times are noise: whatever a trial finds, the settings of the start are as good."""
    noise = np.random.default_rng(3)
    trials_end = 1 + autotune.WARM_UP_STEPS + autotune.TRIALS * (autotune.STEPS_PER_TRIAL + 2)
    steps = 0

    def seconds_a_step(*settings):
        nonlocal steps
        steps += 1
        if steps < trials_end:
            return noise.uniform(1, 2)
        return 1.2 if settings == _START else 1.3

    engine = _Engine(seconds_a_step)
    tuner = _tuned(engine)
    found = engine.proposals[autotune.TRIALS - 1]  # a trial was faster
    assert engine.proposals[autotune.TRIALS - 1 :] == [found, _START] * autotune.TURNS + [_START]
    assert found != _START
    assert tuner.best() == _START
    assert capsys.readouterr().out.endswith("1.2 s a step, the settings of the start (20 trials)\n")


def test_best_and_start_take_turns_before_one_is_kept():
    engine = _Engine(_bowl)
    tuner = _tuned(engine)
    best = tuner.best()
    turns = engine.proposals[autotune.TRIALS - 1 : -1]
    assert turns == [best, _START] * autotune.TURNS
    for settings in (best, _START):
        assert len(tuner._seconds[settings]) == autotune.TURNS * autotune.STEPS_PER_TRIAL


def test_time_between_epochs_does_not_count():
    engine = _Engine(lambda *settings: 1.0)
    tuner = autotune.Autotuner(engine, engine.clock)
    while not tuner.is_finished():
        tuner.skip_interval()
        _train(tuner, engine, 3)
        engine.now += 100.0  # validation
    assert {second for seconds in tuner._seconds.values() for second in seconds} == {1.0}


def test_batch_numbers_that_start_anew_do_not_count():
    engine = _Engine(lambda *settings: 1.0)
    tuner = autotune.Autotuner(engine, engine.clock)
    while not tuner.is_finished():
        _train(tuner, engine, 3)
        engine.now += 100.0
    assert {second for seconds in tuner._seconds.values() for second in seconds} == {1.0}


def test_several_steps_per_execution():
    engine = _Engine(_bowl)
    tuner = _tuned(engine, steps_per_execution=8)
    assert _bowl(*tuner.best()) < 1.03 * _bowl(*_FASTEST)
    times = autotune.TURNS * autotune.STEPS_PER_TRIAL
    assert tuner._seconds[_START] == pytest.approx([_bowl(*_START)] * times)


def test_training_that_ends_early_says_so_and_the_next_goes_on(capsys):
    engine = _Engine(_bowl)
    tuner = autotune.Autotuner(engine, engine.clock)
    _train(tuner, engine, 3)
    tuner.training_ended()
    assert capsys.readouterr().out == (
        "P3 autotune: not finished, 0 of 20 trials. The next training goes on with it.\n"
    )
    tuner.skip_interval()
    _train(tuner, engine, 50)
    tuner.training_ended()
    slice_bytes, credit_bytes = tuner.best()
    output = capsys.readouterr().out
    assert output.startswith("P3 autotune: not finished, 7 of 20 trials; best so far ")
    assert f"slice_bytes={slice_bytes} credit_bytes={credit_bytes}, " in output
    tuner.skip_interval()
    _train(tuner, engine, 1000)
    assert tuner.is_finished()
    assert engine.proposals[-1] == tuner.best()
    capsys.readouterr()
    tuner.training_ended()
    assert capsys.readouterr().out == ""


def test_nothing_more_happens_after_the_end():
    engine = _Engine(_bowl)
    tuner = _tuned(engine)
    proposals = list(engine.proposals)
    for batch in range(20):
        engine.run_steps()
        tuner.batch_ended(batch)
    assert engine.proposals == proposals


def test_missing_optuna_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match="`pip install optuna`, or leave HVD_P3_AUTOTUNE unset"):
        autotune.Autotuner(_Engine(_bowl))


@pytest.fixture
def in_process(monkeypatch):
    """Makes the process that `hvd_p3.init` would have made."""

    def make(reduction=process.ENGINE, rank=0, **settings):
        config = configuration.Configuration(**settings)
        monkeypatch.setattr(process, "_process", process._Process(config, reduction))
        monkeypatch.setattr(process, "rank", lambda: rank)

    return make


def test_one_tuner_for_each_process(in_process):
    in_process(autotune=True)
    tuner = autotune.current()
    assert tuner is autotune.current()
    in_process(autotune=True)
    assert autotune.current() is not tuner


def test_no_tuner_where_there_is_nothing_to_do(in_process):
    in_process(autotune=False)
    assert autotune.current() is None
    in_process(autotune=True, rank=1)
    assert autotune.current() is None
    for reduction in (process.NOT_NEEDED, process.HOROVOD):
        in_process(autotune=True, reduction=reduction)
        assert autotune.current() is None


class _RecordingTuner:
    def __init__(self):
        self.calls = []

    def batch_ended(self, batch):
        self.calls.append(batch)

    def skip_interval(self):
        self.calls.append("skip")

    def training_ended(self):
        self.calls.append("end")


def _fit(monkeypatch, model, **arguments):
    tuner = _RecordingTuner()
    monkeypatch.setattr(autotune, "current", lambda: tuner)
    x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
    callbacks = [hvd_p3.callbacks.P3Callback(verbose=0)]
    model.fit(x, y, batch_size=1, epochs=2, callbacks=callbacks, verbose=0, **arguments)
    return tuner.calls


def _model(layers, **arguments):
    model = keras.Sequential(layers)
    model.compile(hvd_p3.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", **arguments)
    return model


def test_training_skips_what_is_no_step(gated_engine, monkeypatch):
    model = _model([keras.Input((2,)), keras.layers.Dense(1)])
    validation = (np.ones((2, 2), "float32"), np.ones((2, 1), "float32"))
    calls = _fit(monkeypatch, model, validation_data=validation)
    assert calls == ["skip", *range(8), "skip"] * 2 + ["end"]


def test_training_tells_the_steps_of_an_execution(gated_engine, monkeypatch):
    model = _model([keras.Input((2,)), keras.layers.Dense(1)], steps_per_execution=4)
    calls = _fit(monkeypatch, model)
    assert [call for call in calls if call not in ("skip", "end")] in ([3, 7] * 2, [0, 4] * 2)


def test_the_step_that_is_traced_anew_is_skipped(gated_engine, monkeypatch):
    model = _model([keras.layers.Dense(1)])  # built at its first batch
    calls = _fit(monkeypatch, model)
    assert calls[:4] == ["skip", 0, "skip", 1]


def test_search_in_training_leaves_the_weights_alone(gated_engine, monkeypatch, capsys):
    def train(autotuned):
        config = configuration.Configuration(autotune=autotuned)
        monkeypatch.setattr(process, "_process", process._Process(config, process.ENGINE))
        keras.utils.set_random_seed(1)
        layers = [keras.Input((32,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)]
        model = _model(layers)
        x = np.random.default_rng(0).normal(size=(60, 32)).astype("float32")
        callbacks = [hvd_p3.callbacks.P3Callback(verbose=0)]
        for _ in range(2):
            data = x, x.sum(axis=1)
            model.fit(*data, batch_size=1, epochs=2, callbacks=callbacks, verbose=0)
        return model.get_weights(), capsys.readouterr().out

    expected, _ = train(autotuned=False)
    weights, output = train(autotuned=True)
    for weight, other in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(weight, other)
    unfinished, finished = output.splitlines()
    assert unfinished.startswith("P3 autotune: not finished, ")
    assert finished.startswith("P3 autotune: slice_bytes=")
    assert finished.endswith("(20 trials)")
    best = autotune.current().best()
    settings = _engine.current_settings()
    assert (settings["slice_bytes"], settings["credit_bytes"]) == best
