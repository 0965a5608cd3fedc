import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import { it } from "../harness/hub.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

function run(...args: readonly string[]): {
  status: number | null;
  stdout: string;
  stderr: string;
} {
  const command = [`${ROOT}scripts/contract.ts`, ...args];
  const env = { ...process.env, INIT_CWD: `${ROOT}test/fixtures` };
  return spawnSync(process.execPath, command, { encoding: "utf8", env });
}

describe("npm run contract", () => {
  const HIDES = ["./plugin/faulty.ts", "--options", '{"fault":"hides errors"}'];

  it("says which demands a plugin meets, which not and why, and which do not apply", () => {
    const { status, stdout } = run(...HIDES);
    assert.equal(status, 1, stdout);
    assert.match(stdout, /✓ {2}shares nothing/);
    assert.match(stdout, /✗ {2}leaves errors what they are.*\n +\{"jsonrpc"/);
    assert.match(stdout, /– {2}has servers .*\(it has no servers\)/);
    assert.match(stdout, /^\d+ met, 1 not met, \d+ do not apply$/m);
  });

  it("passes a plugin that may do what it does", () => {
    const { status, stdout } = run(...HIDES, "--changes", "results");
    assert.equal(status, 0, stdout);
    assert.match(stdout, /^\d+ met, 0 not met, \d+ do not apply$/m);
  });

  it("says once that there is no such plugin", () => {
    const { status, stdout } = run("./plugin/absent.ts");
    assert.equal(status, 1);
    assert.match(stdout, /^ {2}✗ {2}can be loaded.*\n.*absent\.ts/);
    assert.equal(stdout.match(/✗/g)?.length, 1);
  });

  it("refuses arguments that make no sense", () => {
    for (const args of [
      ["a", "b"],
      ["a", "--options", "[]"],
    ]) {
      const { status, stdout, stderr } = run(...args);
      assert.equal(status, 2, args.join(" "));
      assert.equal(stdout, "");
      assert.match(stderr, /Usage: npm run contract/);
    }
  });
});
