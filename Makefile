# Everything that these need (virtual environment, built tools) is made on the first run, in ~/.cache/spillway.
# What they build themselves does not go by the -j of this make.
run = @env -u MAKEFLAGS python3 stacks/local/toolchain/bootstrap.py
by_file = --dist loadfile --no-loadscope-reorder

demo: ; $(run) spillway demo
# `make -j test` runs both parts beside each other.
test: test-live test-units
# Live tests wait for most of their time: three processes on two cores, and the others beside them.
test-live: tools ; $(run) pytest -n 3 $(by_file) tests/live
test-units: tools ; $(run) pytest -n 2 $(by_file) --ignore tests/live
test-jobs: tools ; $(run) pytest -m training tests/training
tools: ; $(run) python -m tests.live
# Property tests with new examples, 20 times as many: hours. What one finds is kept beside it as an @example.
nightly: ; $(run) env HYPOTHESIS_PROFILE=nightly pytest -n 2 -m 'hypothesis and not live' --timeout 28800
lint: ; $(run) sh -c 'ruff check && ruff format --check && mypy && lint-imports --no-cache --no-logo'
bench: ; $(run) python -m tests.bench

.PHONY: demo test test-live test-units test-jobs tools nightly lint bench
