"""The computation of ranks that are alike: forward and backward passes, and waits in between."""

import dataclasses
import enum


class Mode(enum.Enum):
    """When a rank waits for its gradients."""

    OVERLAPPED = "just before the forward pass reads the variable"
    IMMEDIATE = "at the end of the step"
    FREE = "never"


@dataclasses.dataclass(frozen=True)
class LayerWork:
    """What a rank does in a layer.

    Args:
        forward_s, backward_s, update_s: float.
        tensors: tuple of int, the indices of its gradients.
    """

    forward_s: float
    backward_s: float
    update_s: float
    tensors: tuple


class RankProcess:
    """Trains for a number of steps.

    Args:
        loop: `EventLoop`.
        layers: list of `LayerWork`, in the order of the forward pass.
        input_s: float, seconds of each step before the forward pass.
        mode: `Mode`.
        steps: int.
        push: Function that is called with this process and a list of gradients that it has made.
        recorder: `recording.Recorder`, or None.
    """

    def __init__(self, loop, layers, input_s, mode, steps, push, recorder=None):
        self._loop = loop
        self._layers = layers
        self._input_s = input_s
        self._mode = mode
        self._steps = steps
        self._push = push
        self._recorder = recorder
        self._layer_of = {
            tensor: index for index, layer in enumerate(layers) for tensor in layer.tensors
        }
        self._outstanding = [0] * len(layers)  # gradients that are not reduced
        self._all_outstanding = 0
        self._waits_in = None  # the layer, or len(layers) at the end of the step
        self._wait_start = 0.0
        self._waited_for = 0  # gradients
        self._ended = 0  # steps
        self.backward_starts = []
        self.waits = []  # (start, end)

    @property
    def finished(self):
        """bool, whether all steps have ended."""
        return self._ended == self._steps

    def start(self):
        """Begins the first step."""
        self._begin_step()

    def reduced(self, tensor):
        """Says that a gradient is reduced on all ranks."""
        index = self._layer_of[tensor]
        self._outstanding[index] -= 1
        self._all_outstanding -= 1
        if self._waits_in == index and self._outstanding[index] == 0:
            self._end_wait(tensor)
            self._compute_forward(index)
        elif self._waits_in == len(self._layers) and self._all_outstanding == 0:
            self._end_wait(tensor)
            self._update_all()

    def _begin_step(self):
        self._loop.at(self._loop.now + self._input_s, self._forward, 0)

    def _forward(self, index):
        if index == len(self._layers):
            self.backward_starts.append(self._loop.now)
            self._backward(index - 1)
        elif self._mode is Mode.OVERLAPPED and self._outstanding[index] > 0:
            self._begin_wait(index, self._outstanding[index])
        else:
            self._compute_forward(index)

    def _compute_forward(self, index):
        layer = self._layers[index]
        seconds = layer.forward_s
        if self._mode is Mode.OVERLAPPED and self._ended > 0:
            seconds += layer.update_s
            self._applied(layer)
        self._loop.at(self._loop.now + seconds, self._forward, index + 1)

    def _backward(self, index):
        self._loop.at(self._loop.now + self._layers[index].backward_s, self._end_backward, index)

    def _end_backward(self, index):
        tensors = self._layers[index].tensors
        if tensors and self._mode is not Mode.FREE:
            self._outstanding[index] = len(tensors)
            self._all_outstanding += len(tensors)
            if self._recorder is not None:
                self._recorder.pushed(self, tensors)
            self._push(self, tensors)
        if index > 0:
            self._backward(index - 1)
            return
        if self._mode is Mode.OVERLAPPED:
            self._end_step()
        elif self._all_outstanding > 0:
            self._begin_wait(len(self._layers), self._all_outstanding)
        else:
            self._update_all()

    def _update_all(self):
        for layer in self._layers:
            self._applied(layer)
        update_s = sum(layer.update_s for layer in self._layers)
        self._loop.at(self._loop.now + update_s, self._end_step)

    def _end_step(self):
        self._ended += 1
        if not self.finished:
            self._begin_step()

    def _begin_wait(self, index, tensors):
        self._waits_in = index
        self._wait_start = self._loop.now
        self._waited_for = tensors
        if self._recorder is not None:
            everything = range(len(self._layers)) if index == len(self._layers) else [index]
            for layer in everything:
                self._recorder.wait_began(self, self._layers[layer].tensors)

    def _end_wait(self, tensor):
        self._waits_in = None
        if self._loop.now > self._wait_start:
            self.waits.append((self._wait_start, self._loop.now))
            if self._recorder is not None:
                self._recorder.waited(self, tensor, self._waited_for, self._wait_start)

    def _applied(self, layer):
        if self._recorder is not None and self._mode is not Mode.FREE:
            self._recorder.applied(self, layer.tensors)
