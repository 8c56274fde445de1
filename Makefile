# Everything that these need (virtual environment, built tools) is made on the first run, in ~/.cache/spillway.
run = @python3 stacks/local/toolchain/bootstrap.py

demo: ; $(run) spillway demo
# Three processes on two cores: live tests wait for most of their time.
test: ; $(run) sh -c 'python -m tests.live && exec pytest -n 3 --dist loadfile --no-loadscope-reorder'
# Property tests with new examples, 20 times as many: hours. What one finds is kept beside it as an @example.
nightly: ; $(run) env HYPOTHESIS_PROFILE=nightly pytest -n 2 -m 'hypothesis and not live' --timeout 28800
test-jobs: ; $(run) pytest -m training tests/training
lint: ; $(run) sh -c 'ruff check && ruff format --check && mypy && lint-imports --no-cache --no-logo'
bench: ; $(run) python -m tests.bench

.PHONY: demo test nightly test-jobs lint bench
