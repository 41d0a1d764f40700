"""Channels between threads: the behaviour that channels over MPI have, too."""

import threading
import time

import numpy as np
import pytest
import ranks

from hvd_p3.shadow.channel import ANY, ChannelClosedError, in_process_channels


def test_messages_keep_their_order_and_their_bytes():
    def program(channel):
        if channel.rank == 0:
            values = np.arange(5, dtype="float32")
            channel.send(1, 7, values)
            values[:] = -1  # the message is a copy
            channel.send(1, 8, b"other")
            channel.send(1, 7, b"")
            channel.flush(1)
            return None
        other = channel.receive(0, 8, 5)
        first = channel.receive(ANY, 7, 5)
        second = channel.receive(0, ANY, 5)
        return other, first, second

    _, ((_, _, other), (sender, tag, first), (_, _, second)) = ranks.run(2, program)
    assert other.tobytes() == b"other"
    assert (sender, tag) == (0, 7)
    np.testing.assert_array_equal(first.view("float32"), np.arange(5, dtype="float32"))
    assert second.size == 0


def test_a_rank_sends_to_itself():
    (channel,) = in_process_channels("self", 1)
    channel.send(0, 1, b"note")
    assert channel.receive(0, 1, 1)[2].tobytes() == b"note"


def test_receive_has_a_time_limit():
    (channel,) = in_process_channels("quiet", 1)
    with pytest.raises(TimeoutError, match=r"channel 'quiet'.*rank 0 sent no message.*0.05 s"):
        channel.receive(0, 1, 0.05)
    with pytest.raises(TimeoutError):
        channel.receive(ANY, ANY, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums(dtype):
    def program(channel):
        array = np.arange(1000, dtype=dtype) * (channel.rank + 1)
        for _ in range(3):
            total = array.copy()
            channel.all_reduce(total)
        return total

    for total in ranks.run(3, program):
        np.testing.assert_array_equal(total, 6 * np.arange(1000, dtype=dtype))


def test_sums_over_some_ranks():
    def program(channel):
        array = np.full(4, float(channel.rank))
        if channel.rank != 1:
            channel.all_reduce(array, ranks=[0, 2])
        return array[0]

    assert ranks.run(3, program) == [2, 1, 2]


def test_a_sum_that_was_given_up_stays_so():
    """It may still come to its end on a rank that is late; another generation begins afresh."""

    def program(channel):
        if channel.rank == 0:
            with pytest.raises(TimeoutError, match=r"did not hear from all ranks within 0.05 s"):
                channel.all_reduce(np.ones(1), timeout_s=0.05)
            with pytest.raises(RuntimeError, match="no longer possible"):
                channel.all_reduce(np.ones(1))
            channel.send(1, 1, b"given up")
        else:
            channel.receive(0, 1, 5)
            late = np.ones(1)
            channel.all_reduce(late)
            assert late == 2
            with pytest.raises(TimeoutError):
                channel.all_reduce(np.ones(1), timeout_s=0.05)
        again = np.ones(1)
        channel.all_reduce(again, generation=1)
        assert again == 2

    ranks.run(2, program)


def test_closing_ends_all_waiting():
    channels = in_process_channels("closing", 2)
    errors = []

    def wait(call):
        try:
            call()
        except ChannelClosedError as error:
            errors.append(str(error))

    threads = [
        threading.Thread(target=wait, args=(call,))
        for call in (
            lambda: channels[0].receive(ANY, ANY, -1),
            lambda: channels[0].all_reduce(np.ones(1), timeout_s=60),
        )
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    channels[0].close()
    for thread in threads:
        thread.join(5)
    assert errors == 2 * ["channel 'closing' is closed on this rank"]
    with pytest.raises(ChannelClosedError):
        channels[0].send(1, 1, b"")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda channel: channel.send(2, 1, b""), "ranks 0 to 1, received rank 2"),
        (lambda channel: channel.send(-1, 1, b""), "received rank -1"),
        (lambda channel: channel.send(0, 40000, b""), "0 to 32766, received tag 40000"),
        (lambda channel: channel.send(0, -1, b""), "received tag -1"),
        (lambda channel: channel.send(0, 1, np.ones([4, 4])[:, 1]), "contiguous"),
        (lambda channel: channel.all_reduce([1.0]), "NumPy array"),
        (lambda channel: channel.all_reduce(np.ones(1, "int32")), "received int32"),
        (lambda channel: channel.all_reduce(np.ones(1, "complex64")), "received complex64"),
        (lambda channel: channel.all_reduce(np.ones([4, 4])[:, 1]), "contiguous"),
        (lambda channel: channel.all_reduce(np.ones(1), ranks=[1]), "include this one, 0"),
        (lambda channel: channel.all_reduce(np.ones(1), ranks=[1, 0]), "ascending order"),
        (lambda channel: channel.all_reduce(np.ones(1), ranks=[0, 5]), "ranks from 0 to 1"),
        (lambda channel: channel.all_reduce(np.ones(1), slice_bytes=4), "received 4"),
        (lambda channel: channel.all_reduce(np.ones(1), generation=-1), "received -1"),
    ],
)
def test_bad_arguments(call, message):
    channel = in_process_channels("strict", 2)[0]
    with pytest.raises(ValueError, match=message):
        call(channel)
