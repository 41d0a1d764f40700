"""Priorities follow the order in which a traced program first uses the variables."""

import tensorflow as tf

from hvd_p3 import forward_order


def _uses(program, variables):
    found = []

    @tf.function
    def traced():
        program()
        found.append(forward_order.first_uses(variables))

    traced()
    return found[0]


def test_branches_loops_and_functions_count_where_they_stand():
    a, b, c, d, unused = [tf.Variable(float(index)) for index in range(5)]
    inner = tf.function(lambda: b + 1.0)

    def program():
        x = d * 1.0
        x += tf.cond(x > 0.0, lambda: c + 1.0, lambda: c * 2.0)
        x += inner()
        x += a

    uses = _uses(program, [a, b, c, d, unused])
    assert uses[3] < uses[2] < uses[1] < uses[0]
    assert uses[4] is None
    owners = ["a", "b", "c", "d", "unused"]
    assert forward_order.priorities(uses, owners) == [3, 2, 1, 0, 4]


def test_variables_of_one_layer_share_a_priority():
    assert forward_order.priorities([5, 6, 2, 3], ["x", "x", "y", "y"]) == [1, 1, 0, 0]
    assert forward_order.priorities([0, 5, 2], ["x", "x", "y"]) == [0, 2, 1]


def test_without_a_trace_the_order_of_the_list_counts():
    variable = tf.Variable(1.0)
    assert forward_order.first_uses([variable]) is None
    assert forward_order.priorities(None, ["a", "b", "b"]) == [0, 1, 1]
