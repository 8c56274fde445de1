"""The door to AWS: Auto Scaling groups, the catalogue of instance types, prices, errors as data."""
