"""Sends images to a served export over REST.

    python -m examples.serving.rest_client MODEL IMAGE...
    python -m examples.serving.rest_client MODEL IMAGE... --signature features

The signature of files, `serving_bytes`, needs no TensorFlow here; those of
pixels need it to decode the files.
"""

import base64
import http.client
import json
import sys
import time

from examples.serving import command_line
from examples.serving import errors
from examples.serving.pictures import INPUTS
from examples.serving.pictures import OF_PIXELS

PORT = 8501
KINDS = {404: "not found", 400: "refused"}


class RestClient:
    """One connection to the REST interface of TF Serving.

    Args:
        address: "host:port".
        model: the name of the model.
        version: int; None for the newest.
        label: the label of a version, instead.
        timeout: seconds that an answer may take.
    """

    def __init__(self, address, model, version=None, label=None, timeout=10.0):
        self.address = address
        self.timeout = timeout
        self._path = f"/v1/models/{model}"
        if version is not None:
            self._path += f"/versions/{version}"
        elif label is not None:
            self._path += f"/labels/{label}"
        self._connection = http.client.HTTPConnection(address, timeout=timeout)

    def request(self, signature, batch):
        """Builds the body of the request for a batch."""
        body = {"signature_name": signature}
        if signature in OF_PIXELS:
            body["inputs"] = {INPUTS[signature]: batch.tolist()}
        else:
            encoded = [base64.b64encode(each).decode() for each in batch]
            body["instances"] = [{"b64": image} for image in encoded]
        return json.dumps(body).encode()

    def send(self, request):
        """Returns the response to a request, bytes.

        Raises:
            ServingError: if there is none, or it is an error.
        """
        return self._call("POST", f"{self._path}:predict", request)

    def answer(self, response):
        """Returns the outputs in a response: names to lists."""
        answer = _parsed(self.address, response)
        if "outputs" in answer:  # a single output has no name
            outputs = answer["outputs"]
            return (
                outputs if isinstance(outputs, dict) else {"features": outputs}
            )
        rows = answer["predictions"]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def image_shape(self, signature):
        """The shape of one image, as the server describes it; -1 is any."""
        response = self._call("GET", f"{self._path}/metadata")
        metadata = _parsed(self.address, response)["metadata"]
        signatures = metadata["signature_def"]["signature_def"]
        images = signatures[signature]["inputs"]["images"]
        dimensions = images["tensor_shape"]["dim"]
        return [int(dimension["size"]) for dimension in dimensions][1:]

    def close(self):
        """Closes the connection."""
        self._connection.close()

    def _call(self, method, path, body=None):
        headers = {"Content-Type": "application/json"} if body else {}
        end = time.monotonic() + self.timeout
        try:
            self._connection.request(method, path, body, headers)
            response = self._connection.getresponse()
            content = response.read()
            if time.monotonic() > end:  # A socket waits for each part anew.
                raise TimeoutError
        except TimeoutError as error:
            self.close()
            raise errors.timeout(self.address, self.timeout) from error
        except http.client.HTTPException as error:
            self.close()
            raise errors.absent(self.address, "it breaks off HTTP") from error
        except OSError as error:
            self.close()
            raise errors.absent(self.address, str(error)) from error
        if response.status == 200:
            return content
        details = _parsed(self.address, content).get("error", response.reason)
        kind = KINDS.get(response.status, "failed")
        raise errors.of_status(kind, details)


def _parsed(address, content):
    """The JSON object in a response."""
    try:
        answer = json.loads(content)
    except ValueError as error:
        raise errors.absent(address, "it answers, but not in JSON") from error
    if not isinstance(answer, dict):
        raise errors.absent(address, "it answers with no JSON object")
    return answer


if __name__ == "__main__":
    sys.exit(command_line.main(RestClient, PORT, __doc__))
