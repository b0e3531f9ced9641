"""The explained quantity of each task: one number of one input, while some words are hidden."""
