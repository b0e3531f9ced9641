"""`weft serve`: an HTTP API over trained models. The models themselves stay in `weft.predict`."""
