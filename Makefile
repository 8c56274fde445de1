# Everything that these need (virtual environment, built tools) is made on the first run, in ~/.cache/spillway.
run = @python3 stacks/local/toolchain/bootstrap.py

demo: ; $(run) spillway demo
test: ; $(run) sh -c 'python -m tests.live && exec pytest -n 2 --dist loadfile --no-loadscope-reorder'
test-jobs: ; $(run) pytest -m training tests/training
lint: ; $(run) sh -c 'ruff check && ruff format --check && mypy && lint-imports --no-cache --no-logo'
bench: ; $(run) python -m tests.bench

.PHONY: demo test test-jobs lint bench
