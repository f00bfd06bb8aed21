"""Search for the best graph in the latent space of an autoencoder."""
