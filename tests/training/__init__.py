"""Real frameworks, trained by real jobs: ``make test-jobs``. They are too big to be dependencies of the other tests."""
