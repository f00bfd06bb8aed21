"""What a DAG is; knows no neural network."""
