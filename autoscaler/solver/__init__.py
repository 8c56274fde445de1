"""The cutting-stock solver: which nodes to buy for so many pods of each shape. It knows numbers, not Kubernetes."""
