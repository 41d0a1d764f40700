"""The planner: how many GPUs, what batch, which network, and what priority scheduling will bring.

`profile` is what is known of a model on a device, `builtin` has profiles of well-known models,
`simulation` says how long steps take under each scheme, and `plan` answers the questions of
Distributed Training Large-Scale Deep Architectures (Zou et al., 2017). None of it needs TensorFlow
or Horovod.
"""
