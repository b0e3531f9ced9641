"""The peers of bench/serve.py: what one writes in ten minutes with FastAPI, and LitServe.

`python bench/serve_peer.py KIND PORT MODEL` with KIND of fastapi-sklearn, litserve-sklearn (which
waits up to 5 ms for a batch), litserve-sklearn-at-once (which does not), fastapi-transformers.
MODEL is a pickle of a scikit-learn pipeline made by bench/serve.py in its own temporary folder, or
a checkpoint folder.
"""

import functools
import pickle
import sys
from pathlib import Path

try:
    import litserve
except ImportError:
    litserve = None

if litserve is not None:

    class SklearnApi(litserve.LitAPI):
        """LitServe's way; it starts its workers from a class of this module."""

        def setup(self, device):
            self.pipeline = pickle.loads(Path(self.model).read_bytes())

        def decode_request(self, request):
            return request["text"]

        def batch(self, inputs):
            return list(inputs)

        def predict(self, texts):
            return self.pipeline.predict_proba(texts)

        def unbatch(self, output):
            return list(output)

        def encode_response(self, probs):
            best = int(probs.argmax())
            return {"value": str(self.pipeline.classes_[best]), "score": float(probs[best])}


def fastapi_sklearn(port: int, model: str) -> None:
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    pipeline = pickle.loads(Path(model).read_bytes())
    app = FastAPI()

    class Request(BaseModel):
        text: str

    @app.post("/predict")
    def predict(request: Request) -> dict:
        (probs,) = pipeline.predict_proba([request.text])
        best = int(probs.argmax())
        return {"value": str(pipeline.classes_[best]), "score": float(probs[best])}

    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def litserve_sklearn(port: int, model: str, wait: float = 0.005) -> None:
    api = SklearnApi(max_batch_size=32, batch_timeout=wait)
    api.model = model
    server = litserve.LitServer(api, accelerator="cpu")
    server.run(port=port, generate_client_file=False, log_level="warning")


def fastapi_transformers(port: int, model: str) -> None:
    import torch
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModel.from_pretrained(model).eval()
    app = FastAPI()

    class Request(BaseModel):
        input: str

    @app.post("/v1/embeddings")
    def embed(request: Request) -> dict:
        batch = tokenizer([request.input], padding=True, truncation=True, return_tensors="pt")
        with torch.no_grad():
            states = network(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        vector = (states * mask).sum(1) / mask.sum(1)
        vector = torch.nn.functional.normalize(vector)[0]
        return {"data": [{"index": 0, "embedding": vector.tolist()}]}

    uvicorn.run(app, port=port, log_level="warning", access_log=False)


KINDS = {
    "fastapi-sklearn": fastapi_sklearn,
    "litserve-sklearn": litserve_sklearn,
    "litserve-sklearn-at-once": functools.partial(litserve_sklearn, wait=0.0),
    "fastapi-transformers": fastapi_transformers,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](int(sys.argv[2]), sys.argv[3])
