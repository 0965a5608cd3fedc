import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";

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
  it("says which demands a plugin meets, which not and why, and which do not apply, and passes one that may do what it does", () => {
    const args = ["./plugin/faulty.ts", "--options", '{"fault":"hides errors"}'];
    const { status, stdout } = run(...args);
    assert.equal(status, 1, stdout);
    assert.match(stdout, /✓ {2}shares nothing/);
    assert.match(stdout, /✗ {2}leaves errors what they are.*\n +\{"jsonrpc"/);
    assert.match(stdout, /– {2}has servers .*\(it has no servers\)/);
    assert.match(stdout, /^\d+ met, 1 not met, \d+ do not apply$/m);
    const other = run(...args, "--changes", "results");
    assert.equal(other.status, 0, other.stdout);
    assert.match(other.stdout, /^\d+ met, 0 not met, \d+ do not apply$/m);
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
