"""The TensorFlow image: its Dockerfile, and the program that it runs."""
