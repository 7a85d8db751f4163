"""Is it better? Students trained by RankCSE beside the alternatives, on real teachers and text."""
