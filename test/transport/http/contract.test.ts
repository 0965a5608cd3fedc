import { linkContract } from "../../contract/link.ts";
import { makePair } from "../../fixtures/http-upstream.ts";

linkContract("httpLink() in the legacy era", () => makePair("legacy"));
linkContract("httpLink() in the modern era", () => makePair("modern"));
linkContract("httpLink() over HTTP with SSE", () => makePair("sse"));
