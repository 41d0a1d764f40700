"""One test for each check in the `checks_*.py` modules, on real ranks."""

import pytest
from check import checks_of

# module -> ranks
_MODULES = {
    "checks_ops": 2,
    "checks_collectives": 2,
    "checks_embedding": 2,
    "checks_embedding_on_four_ranks": 4,
    "checks_failures": 2,
    "checks_horovod_api": 2,
    "checks_optimizer": 2,
    "checks_order": 4,
    "checks_reduction": 4,
    "checks_settings": 4,
    "checks_shadow": 2,
    "checks_shadow_on_four_ranks": 4,
    "checks_sparse": 2,
    "checks_tape": 2,
    "checks_timeline": 2,
}

_CASES = [
    pytest.param(
        check, id=f"{module.removeprefix('checks_')}-{ranks}-{check.name.removeprefix('check_')}"
    )
    for module, ranks in _MODULES.items()
    for check in checks_of(module, ranks)
]


@pytest.mark.parallel
@pytest.mark.parametrize("check", _CASES)
def test_check(assert_check, check):
    assert_check(check)


@pytest.mark.parallel
@pytest.mark.parametrize(
    "check", checks_of("checks_gloo", 2, controller="--gloo"), ids=lambda check: check.name
)
def test_check_under_gloo(assert_check, check):
    assert_check(check)
