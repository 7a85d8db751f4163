"""What RankCSE costs: steps, the loss by itself, memory, sampling."""
