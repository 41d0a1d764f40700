"""Overlapped mode: updates that are applied just before a variable is next read.

`overlapped_updates` joins the others for one optimizer: `pending_update` is one variable's update
and the guard that applies it, `late_update` and `hyper_parameters` make it see the step it belongs
to, `guards`, `guarded_variable` and `guarded_function` put guards where variables are used,
`exporting` keeps them out of exported programs, and `eligibility` says which optimizers can be
overlapped.
"""
