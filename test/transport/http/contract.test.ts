import { transportContract } from "../../contract/link.ts";
import { makePair } from "../../fixtures/http-upstream.ts";

transportContract("httpLink() in the legacy era", () => makePair("legacy"));
transportContract("httpLink() in the modern era", () => makePair("modern"));
transportContract("httpLink() over HTTP with SSE", () => makePair("sse"));
