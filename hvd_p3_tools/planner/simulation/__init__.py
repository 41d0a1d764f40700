"""An event-driven simulation of training steps: layer by layer, slice by slice.

`simulator` is where to start. `event_loop` is the clock; `rank` computes, and pushes gradients to
an engine: `priority_engine` is hvd_p3's or that of parameter servers, `fifo_engine` is stock
Horovod's. `slices` cuts and fuses as hvd_p3 does. `recording` makes a timeline of what happened.
"""
