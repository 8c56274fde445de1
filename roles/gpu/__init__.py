"""What a node with GPUs needs beside: driver, container toolkit, services."""
