"""Language models behind one interface: Hugging Face models, n-grams, lookups and tables."""
