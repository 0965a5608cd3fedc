"""A server that is traced with the SDK of OpenTelemetry: writes each of its spans to the file that its argument names."""

import json
import os
import sys

from fastmcp import FastMCP
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult


class FileExporter(SpanExporter):
    def export(self, spans):
        with open(sys.argv[1], "a") as file:
            for span in spans:
                parent = span.parent
                line = {
                    "name": span.name,
                    "kind": span.kind.name,
                    "variables": [name for name in os.environ if name.startswith("OTEL_")],
                    "traceId": format(span.context.trace_id, "032x"),
                    "parentSpanId": format(parent.span_id, "016x") if parent else None,
                }
                file.write(json.dumps(line) + "\n")
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(FileExporter()))
trace.set_tracer_provider(provider)

server = FastMCP("traced")


@server.tool
def add(a: int, b: int, key: str = "") -> int:
    """Adds two numbers."""
    with trace.get_tracer("server").start_as_current_span("adding"):
        return a + b


server.run(show_banner=False)
