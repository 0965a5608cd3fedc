import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { skipWithout } from "./requirements.ts";

/** The clients of test/go. */
export const GO_CLIENT = fileURLToPath(new URL("../../dist/go/client", import.meta.url));

/** The `skip` option of tests that need it. */
export const SKIP_WITHOUT_GO = skipWithout({
  isMet: existsSync(GO_CLIENT),
  tests: "clients made with the Go SDK",
  remedy: "there is no dist/go/client (install Go 1.25 or later; then node scripts/go.mjs)",
});
