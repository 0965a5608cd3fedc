import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { testHttpAccess } from "../contract/http-access.ts";
import { executable } from "../harness/hub.ts";

const MAIN = fileURLToPath(new URL("../../src/main.ts", import.meta.url));

describe("access to the HTTP server of the executable", () => {
  testHttpAccess(() => [executable()]);
});

describe("access to the HTTP server under Deno", () => {
  testHttpAccess(() => ["deno", "run", "-A", MAIN]);
});
