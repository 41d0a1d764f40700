"""Measurements of hvd_p3 beside stock Horovod, on an emulated cluster; see docs/performance.md."""
