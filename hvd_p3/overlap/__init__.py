"""Overlapped mode: updates that are applied just before the next forward pass reads a variable.

`pending_update` is one variable's update and the guard that applies it, `guarded_variable` puts the
guard into every access of a Keras variable, `eligibility` says which optimizers can be overlapped,
and `overlapped_updates` joins them for one optimizer.
"""
