"""What needs neither TensorFlow nor Horovod: the command `hvd-p3`, and what it is made of.

A package of its own, because importing `hvd_p3` imports both, which takes seconds.
"""
