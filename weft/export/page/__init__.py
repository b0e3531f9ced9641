"""Export a model as one HTML file that runs offline in a browser."""
