"""A collector of traces and metrics: reads what it gets by the official definitions, and prints it as JSON, one line for
each post. The first line has its port."""

import base64
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

IDS = ("traceId", "spanId", "parentSpanId")
KINDS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


def convert_ids(value, convert):
    """Applies a function to all ids: JSON of OTLP has them in hexadecimal, JSON of Protocol Buffers in Base64."""
    if isinstance(value, list):
        return [convert_ids(item, convert) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: convert(inner) if key in IDS and inner else convert_ids(inner, convert)
        for key, inner in value.items()
    }


def to_base64(text):
    return base64.b64encode(bytes.fromhex(text)).decode()


def to_hex(text):
    return base64.b64decode(text).hex()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        content_type = self.headers["Content-Type"]
        message = KINDS[self.path]()
        if content_type == "application/json":
            json_format.ParseDict(convert_ids(json.loads(body), to_base64), message)
        else:
            message.ParseFromString(body)
        read = convert_ids(json_format.MessageToDict(message), to_hex)
        line = {"path": self.path, "type": content_type, "read": read}
        line["headers"] = {name.lower(): value for name, value in self.headers.items()}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(json.dumps({"port": server.server_port}), flush=True)
server.serve_forever()
