# Everything that these need (virtual environment, built tools) is made on the first run, in ~/.cache/spillway.
# What they build themselves does not go by the -j of this make.
run = @env -u MAKEFLAGS python3 stacks/local/toolchain/bootstrap.py

demo: ; $(run) spillway demo
# Live tests wait for most of their time: three processes on two cores. Files that take minutes begin first.
test: tools ; $(run) pytest -n 3 --dist loadfile --no-loadscope-reorder
test-jobs: tools frameworks ; $(run) pytest -m training tests/training
tools: programs folders
programs: ; $(run) python -m tests.live tools
folders: ; $(run) python -m tests.live folders
frameworks: ; $(run) python -m tests.training
# Property tests with new examples, 20 times as many: hours. What one finds is kept beside it as an @example.
nightly: ; $(run) env HYPOTHESIS_PROFILE=nightly pytest -n 2 -m 'hypothesis and not live' --timeout 28800
lint: ; $(run) sh -c 'ruff check && ruff format --check && mypy && lint-imports --no-cache --no-logo'
bench: ; $(run) python -m tests.bench

.PHONY: demo test test-jobs tools programs folders frameworks nightly lint bench
