"""What is read of a machine. Facts that many operations ask for can be asked for many subjects in one command."""
