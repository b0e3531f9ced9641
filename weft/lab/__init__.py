"""The claims of the lectures as experiments: run with several seeds and tested."""
