"""Data preparation by Spark: the program, to be run where Java, pyspark and TensorFlow are."""
