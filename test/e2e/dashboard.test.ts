import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { testDashboard } from "../contract/dashboard.ts";
import { executable } from "../harness/hub.ts";

const MAIN = fileURLToPath(new URL("../../src/main.ts", import.meta.url));

describe("the dashboard of the executable", () => {
  testDashboard(() => [executable()]);
});

describe("the dashboard under Deno", () => {
  testDashboard(() => ["deno", "run", "-A", MAIN], "served");
});
