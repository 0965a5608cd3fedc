import { transportContract } from "../../contract/transport.ts";
import { makeHttpTransportPair } from "../../fixtures/http-transport-pair.ts";

transportContract("httpLink() in the legacy era", () => makeHttpTransportPair("legacy"));
transportContract("httpLink() in the modern era", () => makeHttpTransportPair("modern"));
transportContract("httpLink() over HTTP with SSE", () => makeHttpTransportPair("sse"));
