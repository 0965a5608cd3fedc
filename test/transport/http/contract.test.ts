import { transportContract } from "../../contract/transport.ts";
import { makePair } from "../../fixtures/http-transport-pair.ts";

transportContract("httpLink() in the legacy era", () => makePair("legacy"));
transportContract("httpLink() in the modern era", () => makePair("modern"));
transportContract("httpLink() over HTTP with SSE", () => makePair("sse"));
