"""Language models behind one protocol: Hugging Face models, and models written out as tables."""
