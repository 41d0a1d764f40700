"""Timelines: what each rank reduced and waited for, and when.

`model` is what a timeline holds, `records` makes it from what an engine recorded, `chrome_trace`
writes and reads files, `summary` and `waits` say what it shows, and `drawing` draws it.
"""
